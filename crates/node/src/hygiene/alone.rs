//! Stops the proxy from creating processes and from outliving its parent. Otherwise an attacker who controls the proxy
//! could leave a child behind that keeps the pods' listeners after the proxy is killed, and accepts connections beside
//! the next proxy; or could outlive the holder, and keep the next one from the pods.

use std::io;

use seccompiler::{
    BpfProgram, Error, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule, TargetArch,
};

/// Creates a process or a thread.
const CLONE: &[i64] = &[libc::SYS_clone];
/// The same, but with its flags in memory, which a filter cannot read.
const CLONE3: &[i64] = &[libc::SYS_clone3];

/// Among other things, changes the signal that a process gets when its parent ends.
const PRCTL: &[i64] = &[libc::SYS_prctl];

/// Start a program, or create a process and never a thread.
#[cfg(not(target_arch = "x86_64"))]
const NEVER: &[i64] = &[libc::SYS_execve, libc::SYS_execveat];
#[cfg(target_arch = "x86_64")]
const NEVER: &[i64] = &[
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_fork,
    libc::SYS_vfork,
    // execve and execveat by their x32 numbers, which old kernels also accept without the x32 bit.
    520,
    545,
];

/// Bit that marks x32 system calls, which a filter sees as calls of this architecture.
#[cfg(target_arch = "x86_64")]
const X32: i64 = 0x4000_0000;

/// Forbids this thread and its future threads to start a program, to create a process, and to change the parent-death
/// signal: every attempt fails with EPERM. Call it before there are threads, as existing ones are not affected. Returns
/// `false` where the kernel has no seccomp filters: nothing is forbidden then.
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
    // A filter has only one error. On ENOSYS the C library assumes an old kernel, and creates its threads by clone.
    let unknown = CLONE3.iter().map(|number| (*number, Vec::new()));
    for (rules, errno) in [
        (refused.collect(), libc::EPERM),
        (unknown.collect(), libc::ENOSYS),
    ] {
        let program = program(rules, errno).map_err(broken)?;
        match seccompiler::apply_filter(&program) {
            Ok(()) => {}
            // seccomp(2): the kernel has no such call, or no filters.
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

/// A filter that fails these system calls with an error and allows all others. Calls of another architecture (32 bits
/// on a 64-bit kernel) kill the process.
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

/// Matches a clone whose flags, the first argument, do not ask for a thread of this process.
fn no_thread() -> Result<SeccompRule, Error> {
    let thread = u64::from(libc::CLONE_THREAD.unsigned_abs());
    let masked = SeccompCmpOp::MaskedEq(thread);
    let condition = SeccompCondition::new(0, SeccompCmpArgLen::Qword, masked, 0)?;
    Ok(SeccompRule::new(vec![condition])?)
}

/// Matches a prctl(2) that sets or clears the parent-death signal.
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
