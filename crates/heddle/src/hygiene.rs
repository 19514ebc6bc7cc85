//! What a process does that has private keys in its memory.

use std::io;

use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};

/// Leaves no core file behind and lets no other process of the same user read our memory, so that no key
/// ends up on a disk or in a crash report. The limit cannot be raised again, by us or by processes that we
/// start: those leave no core files either.
///
/// # Errors
/// When the kernel refuses, which it does not of itself.
pub(crate) fn keep_memory_to_ourselves() -> io::Result<()> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
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
        let limit = getrlimit(Resource::Core);
        assert_eq!((limit.current, limit.maximum), (Some(0), Some(0)));
        keep_memory_to_ourselves().expect("and agrees again");
    }
}
