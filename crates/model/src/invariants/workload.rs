//! Invariants of workloads.

use super::{check_port_name, ensure, increasing, is_one_place, policy};
use crate::Workload;

impl Workload {
    /// Checks the invariants of a workload alone, without the policies that it names.
    ///
    /// # Errors
    /// The first broken invariant.
    pub fn check_invariants(&self) -> Result<(), String> {
        ensure(self.weight > 0, "it has no weight")?;
        ensure(is_one_place(self.address), "invalid address")?;
        let more = &self.more_addresses;
        increasing(more, |address| address, "further addresses")?;
        ensure(
            more.iter()
                .all(|&one| is_one_place(one) && one != self.address),
            "a further address is invalid, or equal to the first one",
        )?;
        ensure(
            self.service_account.namespace == self.name.namespace,
            "its service account is another namespace's",
        )?;
        for port in &self.ports {
            ensure(port.port > 0, "it has a port 0")?;
            check_port_name(port.name.as_deref())?;
        }
        policy::check_guard(self)?;
        check_command(self)
    }
}

fn check_command(workload: &Workload) -> Result<(), String> {
    let Some(command) = &workload.command else {
        return Ok(());
    };
    let program = command.argv.first();
    ensure(
        program.is_some_and(|program| !program.is_empty()),
        "no program",
    )?;
    let is_nul_free = |text: &String| !text.contains('\0');
    let env_names = command.env.keys();
    ensure(
        command
            .argv
            .iter()
            .chain(command.env.values())
            .all(is_nul_free)
            && env_names
                .into_iter()
                .all(|name| !name.is_empty() && !name.contains(['=', '\0'])),
        "a command that cannot be started",
    )?;
    let absolute = command
        .working_dir
        .as_ref()
        .is_none_or(|dir| dir.is_absolute());
    ensure(absolute, "its working directory is relative")
}
