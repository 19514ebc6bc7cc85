use super::*;

#[test]
fn a_second_demo_is_told_of_the_first() {
    let name = format!("heddle-demo-test-{}", std::process::id());
    let first = DemoLock::take_as(name.as_bytes(), &[]).unwrap();
    let refused = DemoLock::take_as(name.as_bytes(), &[]).unwrap_err();
    assert!(
        refused.to_string().contains("another demo runs"),
        "{refused}"
    );
    drop(first);

    let service = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = service.local_addr().unwrap();
    let refused = DemoLock::take_as(name.as_bytes(), &[address]).unwrap_err();
    assert!(
        refused
            .to_string()
            .contains(&format!("{address} is taken: another demo")),
        "{refused}"
    );
    drop(service);
    DemoLock::take_as(name.as_bytes(), &[address]).unwrap();
}
