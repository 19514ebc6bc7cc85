use super::*;

#[test]
fn targets_and_watched_processes_are_parsed() {
    let target: Target = "echo.lab@127.0.0.1:80".parse().expect("target");
    assert_eq!(target.authority, "echo.lab");
    assert_eq!(target.address.port(), 80);
    assert!("127.0.0.1:80".parse::<Target>().is_err());
    assert!("a@localhost".parse::<Target>().is_err());
    let watched: Watched = "proxy=12".parse().expect("watched");
    assert_eq!(
        watched,
        Watched {
            name: "proxy".to_owned(),
            pid: 12
        }
    );
    assert!("proxy".parse::<Watched>().is_err());
}
