use super::*;

#[test]
fn values_are_read_by_name() {
    let text = "processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\nmodel name : other\n";
    assert_eq!(value(text, "model name"), Some("Some CPU @ 2 GHz"));
    assert_eq!(value("MemTotal:  2048 kB\n", "MemTotal"), Some("2048 kB"));
    assert_eq!(value(text, "flags"), None);
}

#[test]
fn this_machine_can_be_described() {
    let machine = Machine::describe().expect("proc");
    assert!(machine.cores >= 1 && machine.memory_mib > 0 && !machine.kernel.is_empty());
}
