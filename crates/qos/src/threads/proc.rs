//! What `/proc` says of threads.

use std::fs;

/// A thread's name.
pub(super) fn name(id: i32) -> Option<String> {
    fs::read_to_string(format!("/proc/{id}/comm")).ok()
}

/// The process that a thread is of; `None` if it has ended.
pub(super) fn process_of(id: i32) -> Option<i32> {
    let status = fs::read_to_string(format!("/proc/{id}/status")).ok()?;
    field(&status, "Tgid")?.parse().ok()
}

/// The group of a process in the hierarchy with the `cpu` controller.
pub(super) fn cpu_group_of(process: i32) -> Option<String> {
    let groups = fs::read_to_string(format!("/proc/{process}/cgroup")).ok()?;
    cpu_group(&groups).map(str::to_owned)
}

/// A field of `/proc/PID/status` (`proc_pid_status(5)`).
pub(super) fn field<'t>(status: &'t str, name: &str) -> Option<&'t str> {
    let mut lines = status.lines();
    let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    Some(value.trim())
}

/// The path of a process's group in the hierarchy with the `cpu` controller, from `/proc/PID/cgroup` (`cgroups(7)`).
pub(super) fn cpu_group(groups: &str) -> Option<&str> {
    groups.lines().find_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        let has_cpu = controllers.split(',').any(|one| one == "cpu");
        has_cpu.then_some(path)
    })
}
