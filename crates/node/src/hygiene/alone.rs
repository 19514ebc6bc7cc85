//! A process that stays the only one it is, and ends with the one that started it. A proxy in wrong hands could else
//! leave a child behind that keeps the pods' listeners when the proxy is killed, and accepts from them beside the next
//! one; or outlive its holder, and keep the next one from the pods.

use std::io;

use seccompiler::{
    BpfProgram, Error, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule, TargetArch,
};

/// What makes a process or a thread.
const CLONE: &[i64] = &[libc::SYS_clone];
/// The same, with flags in memory, which no filter can read.
const CLONE3: &[i64] = &[libc::SYS_clone3];

/// What changes what becomes of a process when its parent ends, among other things.
const PRCTL: &[i64] = &[libc::SYS_prctl];

/// What starts a program, or makes nothing but a process.
#[cfg(not(target_arch = "x86_64"))]
const NEVER: &[i64] = &[libc::SYS_execve, libc::SYS_execveat];
#[cfg(target_arch = "x86_64")]
const NEVER: &[i64] = &[
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_fork,
    libc::SYS_vfork,
    // execve and execveat as x32 numbers them, which old kernels answer without its bit too.
    520,
    545,
];

/// Marks the system calls of x32, which pass for those of this architecture.
#[cfg(target_arch = "x86_64")]
const X32: i64 = 0x4000_0000;

/// Starts no program and makes no process from now on, and leaves as it is what becomes of it when its parent ends, in
/// this thread and in those that it makes: every attempt is answered with EPERM. Only before there are threads, as the others could go on. `false` where the kernel has no
/// seccomp filters: nothing is refused then.
///
/// # Errors
/// When the kernel refuses for another reason.
pub(crate) fn stay_alone() -> io::Result<bool> {
    let refused = NEVER.iter().map(|number| (*number, Vec::new()));
    let process = CLONE.iter().map(|number| Ok((*number, vec![no_thread()?])));
    let process: Result<Vec<_>, Error> = process.collect();
    let parent = PRCTL
        .iter()
        .map(|number| Ok((*number, vec![about_parent()?])));
    let parent: Result<Vec<_>, Error> = parent.collect();
    let refused = refused.chain(process.map_err(broken)?);
    let refused = refused.chain(parent.map_err(broken)?);
    // A filter has one answer. The C library takes this one for an old kernel's, and makes its threads by clone.
    let unknown = CLONE3.iter().map(|number| (*number, Vec::new()));
    for (rules, errno) in [
        (refused.collect(), libc::EPERM),
        (unknown.collect(), libc::ENOSYS),
    ] {
        let program = program(rules, errno).map_err(broken)?;
        match seccompiler::apply_filter(&program) {
            Ok(()) => {}
            // seccomp(2): there is no such call, or none with a filter.
            Err(Error::Seccomp(error))
                if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EINVAL)) =>
            {
                return Ok(false);
            }
            Err(Error::Seccomp(error) | Error::Prctl(error)) => return Err(error),
            Err(error) => return Err(broken(error)),
        }
    }
    Ok(true)
}

/// A filter that answers these system calls with an error, and lets all others pass. Those of another architecture
/// (32 bits on a kernel of 64) end the process.
fn program(rules: Vec<(i64, Vec<SeccompRule>)>, errno: i32) -> Result<BpfProgram, Error> {
    #[cfg(target_arch = "x86_64")]
    let rules = rules
        .into_iter()
        .flat_map(|(number, rules)| [(number, rules.clone()), (number | X32, rules)]);
    let filter = SeccompFilter::new(
        rules.into_iter().collect(),
        SeccompAction::Allow,
        SeccompAction::Errno(errno.unsigned_abs()),
        TargetArch::try_from(std::env::consts::ARCH)?,
    )?;
    Ok(filter.try_into()?)
}

/// Flags, the first argument, that do not ask for a thread of this process.
fn no_thread() -> Result<SeccompRule, Error> {
    let thread = u64::from(libc::CLONE_THREAD.unsigned_abs());
    let masked = SeccompCmpOp::MaskedEq(thread);
    let condition = SeccompCondition::new(0, SeccompCmpArgLen::Qword, masked, 0)?;
    Ok(SeccompRule::new(vec![condition])?)
}

/// The first argument of prctl(2) that asks for another signal, or none, when the parent ends.
fn about_parent() -> Result<SeccompRule, Error> {
    let option = u64::from(libc::PR_SET_PDEATHSIG.unsigned_abs());
    let is_that = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, option)?;
    Ok(SeccompRule::new(vec![is_that])?)
}

fn broken(error: Error) -> io::Error {
    io::Error::other(error)
}

#[cfg(test)]
mod tests;
