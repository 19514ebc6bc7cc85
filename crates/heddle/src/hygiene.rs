//! What a process does that has private keys in its memory.

use std::io;

use rustix::process::{
    DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit,
};

/// Leaves no core file behind and lets no other process of the same user read our memory, so that no key
/// ends up on a disk or in a crash report. Processes that we start are not concerned: they get the limit
/// that they may raise again, and the kernel lets a new program be dumped.
///
/// # Errors
/// When the kernel refuses, which it does not of itself.
pub(crate) fn keep_memory_to_ourselves() -> io::Result<()> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    let limit = getrlimit(Resource::Core);
    let none = Rlimit {
        current: Some(0),
        maximum: limit.maximum,
    };
    setrlimit(Resource::Core, none)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use rustix::process::{DumpableBehavior, Resource, dumpable_behavior, getrlimit};

    use super::keep_memory_to_ourselves;

    #[test]
    fn a_process_with_keys_leaves_no_core_file() {
        keep_memory_to_ourselves().expect("the kernel agrees");
        assert_eq!(dumpable_behavior(), Ok(DumpableBehavior::NotDumpable));
        assert_eq!(getrlimit(Resource::Core).current, Some(0));
    }
}
