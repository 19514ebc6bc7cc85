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

#[test]
fn the_kernels_configuration_says_to_what_interrupts_are_charged() {
    for (text, expected, json) in [
        (
            "CONFIG_IRQ_WORK=y\nCONFIG_IRQ_TIME_ACCOUNTING=y\n",
            IrqTimeAccounting::Apart,
            "\"y\"",
        ),
        (
            "# CONFIG_IRQ_TIME_ACCOUNTING is not set\n",
            IrqTimeAccounting::WithTheProcess,
            "\"n\"",
        ),
        (
            "CONFIG_IRQ_WORK=y\n",
            IrqTimeAccounting::Unknown,
            "\"unknown\"",
        ),
    ] {
        let found = IrqTimeAccounting::of(text);
        assert_eq!(found, expected, "{text}");
        assert_eq!(serde_json::to_string(&found).expect("text"), json);
    }
}
