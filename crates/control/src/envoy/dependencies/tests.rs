use super::*;

fn account(name: &str) -> ServiceAccountName {
    ServiceAccountName::new("shop", name).expect("a name")
}

fn service(name: &str) -> ServiceName {
    ServiceName::new("shop", name).expect("a name")
}

fn learn(dependencies: &mut Dependencies, of: &str, uses: &str) -> usize {
    let (accounts, written) = dependencies.learn([(account(of), service(uses))], 7);
    written.expect("it is written");
    accounts.len()
}

fn names(dependencies: &Dependencies, of: &str) -> Vec<String> {
    let of = dependencies.of(&account(of));
    of.keys().map(ToString::to_string).collect()
}

#[test]
fn what_was_learned_is_there_after_the_process_was_killed() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut first = opened(dir.path(), 7);
    assert_eq!(learn(&mut first, "web", "api"), 1);
    assert_eq!(learn(&mut first, "web", "db"), 1);
    assert_eq!(learn(&mut first, "web", "api"), 0, "it is known");
    // Nothing is written when it goes: it might as well have been killed.
    std::mem::forget(first);
    let again = opened(dir.path(), 7);
    assert_eq!(names(&again, "web"), ["shop/api", "shop/db"]);
    assert_eq!(names(&again, "other"), [""; 0]);
}

#[test]
fn a_line_that_was_cut_off_or_is_not_understood_is_passed_over() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut first = opened(dir.path(), 7);
    learn(&mut first, "web", "api");
    let path = dir.path().join(DEPENDENCIES);
    let mut text = std::fs::read(&path).expect("it is there");
    text.extend(b"\xff\n{\"guessed\":1}\n");
    text.extend(line(&Fact::Learned {
        account: account("web"),
        service: service("db"),
        at: 9,
        used: None,
    }));
    text.extend(b"{\"learned\":{\"account\":\"shop/we");
    std::fs::write(&path, text).expect("it is written");
    let mut again = opened(dir.path(), 7);
    assert_eq!(names(&again, "web"), ["shop/api", "shop/db"]);
    // The next fact is not joined to the line that was cut off.
    learn(&mut again, "web", "cart");
    drop(again);
    let last = opened(dir.path(), 7);
    assert_eq!(names(&last, "web"), ["shop/api", "shop/cart", "shop/db"]);
}

#[test]
fn an_account_that_scans_has_a_limit() {
    let mut dependencies = Dependencies::default();
    for number in 0..MAX_OF_ACCOUNT + 10 {
        learn(&mut dependencies, "web", &format!("s{number}"));
    }
    assert_eq!(names(&dependencies, "web").len(), MAX_OF_ACCOUNT);
    assert_eq!(learn(&mut dependencies, "other", "api"), 1);
}

fn opened(folder: &Path, now: u64) -> Dependencies {
    let (dependencies, written) = Dependencies::open(folder, now);
    written.expect("it is written");
    dependencies
}

/// Notes that `web` uses a Service.
fn uses(dependencies: &mut Dependencies, service: &str, now: u64) {
    dependencies.note_uses(&account("web"), [self::service(service)].iter(), now);
}

fn forget(dependencies: &mut Dependencies, now: u64) -> usize {
    let (accounts, count, written) = dependencies.forget(100, now);
    written.expect("it is written");
    assert_eq!(accounts.is_empty(), count == 0);
    count
}

#[test]
fn what_is_not_used_for_long_is_forgotten_for_good() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut first = opened(dir.path(), 0);
    learn(&mut first, "web", "api");
    learn(&mut first, "web", "db");
    uses(&mut first, "db", 50);
    uses(&mut first, "unknown", 50);
    assert_eq!(forget(&mut first, 106), 0);
    assert_eq!(forget(&mut first, 107), 1);
    assert_eq!(names(&first, "web"), ["shop/db"]);
    // It can be learned again, and what is learned afterwards is kept in the file that was written anew.
    assert_eq!(learn(&mut first, "web", "api"), 1);
    drop(first);
    let again = opened(dir.path(), 107);
    assert_eq!(names(&again, "web"), ["shop/api", "shop/db"]);
    assert_eq!(again.of(&account("web"))[&service("db")].used, 50);
}

#[test]
fn nothing_is_forgotten_because_the_control_plane_was_away() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut first = opened(dir.path(), 0);
    learn(&mut first, "web", "api");
    drop(first);
    let mut again = opened(dir.path(), 1_000);
    assert_eq!(forget(&mut again, 1_000), 0);
    assert_eq!(forget(&mut again, 1_099), 0);
    assert_eq!(forget(&mut again, 1_100), 1);
    // A clock that goes back does not make anything old.
    learn(&mut again, "web", "db");
    assert_eq!(forget(&mut again, 3), 0);
}

#[test]
fn what_could_not_be_written_is_written_as_soon_as_it_can_be() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut first = opened(dir.path(), 0);
    learn(&mut first, "web", "api");
    // A folder in the place of the file that is written before it takes the place of the old one; and an end that takes nothing.
    let partial = dir.path().join(DEPENDENCIES).with_extension("new");
    std::fs::create_dir(&partial).expect("a folder");
    first.file = Some(File::open(dir.path().join(DEPENDENCIES)).expect("read only"));
    let (accounts, written) = first.learn([(account("web"), service("db"))], 7);
    assert_eq!((accounts.len(), written.is_err()), (1, true));
    let (_, _, forgot) = first.forget(1_000, 8);
    assert!(forgot.is_err(), "it is tried again, and said again");
    std::fs::remove_dir(&partial).expect("removed");
    assert_eq!(forget(&mut first, 9), 0);
    assert_eq!(learn(&mut first, "web", "cart"), 1);
    drop(first);
    let again = opened(dir.path(), 10);
    assert_eq!(names(&again, "web"), ["shop/api", "shop/cart", "shop/db"]);
}

#[test]
fn what_can_be_read_is_known_even_if_nothing_can_be_written() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut first = opened(dir.path(), 0);
    learn(&mut first, "web", "api");
    drop(first);
    let partial = dir.path().join(DEPENDENCIES).with_extension("new");
    std::fs::create_dir(&partial).expect("a folder");
    let (mut again, written) = Dependencies::open(dir.path(), 1);
    let why = written.expect_err("it cannot be written").to_string();
    assert!(
        why.starts_with("it cannot be written, which is tried again: "),
        "{why}"
    );
    assert_eq!(names(&again, "web"), ["shop/api"]);
    std::fs::remove_dir(&partial).expect("removed");
    assert_eq!(learn(&mut again, "web", "db"), 1);
    drop(again);
    assert_eq!(
        names(&opened(dir.path(), 2), "web"),
        ["shop/api", "shop/db"]
    );
}

#[test]
fn a_file_that_cannot_be_read_is_left_as_it_is() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join(DEPENDENCIES);
    std::fs::create_dir(&path).expect("a folder in its place");
    let (mut dependencies, read) = Dependencies::open(dir.path(), 0);
    let why = read.expect_err("it cannot be read").to_string();
    assert!(why.starts_with("it cannot be read: "), "{why}");
    assert_eq!(learn(&mut dependencies, "web", "api"), 1);
    assert!(path.is_dir());
}
