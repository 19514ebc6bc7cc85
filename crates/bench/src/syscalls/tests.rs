use super::*;

#[test]
fn the_count_of_perf_is_read() {
    let text = "# started on today\n\n29,,raw_syscalls:sys_enter,2003184,100.00,,\n";
    assert_eq!(perf_count(text), Some(29));
    assert_eq!(
        perf_count("<not supported>,,raw_syscalls:sys_enter,0,0\n"),
        None
    );
    assert_eq!(perf_count(""), None);
}

#[test]
fn the_count_of_strace_is_read_with_and_without_errors() {
    let head = "% time     seconds  usecs/call     calls    errors syscall\n";
    let with = format!("{head}100.00    0.000412           5        77         3 total\n");
    let without = format!("{head}100.00    0.000412           5        77           total\n");
    assert_eq!(strace_count(&with), Some(77));
    assert_eq!(strace_count(&without), Some(77));
    assert_eq!(strace_count("strace: nothing\n"), None);
}
