use super::{ProxyUser, User, find};

const USERS: &str = "root:x:0:0:root:/root:/bin/sh
nobody:x:65534:65534::/:/bin/false
mesh:x:2000:2001::/:/bin/false
damaged:x:many
";

#[test]
fn the_proxy_is_who_is_named_and_never_root() {
    let with_ours = format!("{USERS}heddle:x:990:991::/:/bin/false\n");
    for (users, wanted, found) in [
        (USERS, None, Ok((65_523, 65_523))),
        (with_ours.as_str(), None, Ok((990, 991))),
        ("heddle:x:0:0::/:/bin/sh", None, Err("neither root")),
        (USERS, Some("mesh"), Ok((2000, 2001))),
        (USERS, Some("mesh:7"), Ok((2000, 7))),
        (USERS, Some("2000"), Ok((2000, 2001))),
        (USERS, Some("2000:5"), Ok((2000, 5))),
        (USERS, Some("77"), Ok((77, 77))),
        (USERS, Some("nobody"), Ok((65_534, 65_534))),
        (USERS, Some("root"), Err("neither root")),
        (USERS, Some("0"), Err("neither root")),
        (USERS, Some("77:0"), Err("neither root")),
        (USERS, Some("65535"), Err("is no user")),
        (USERS, Some("4294967295"), Err("is no user")),
        (USERS, Some("damaged"), Err("there is no user damaged")),
        (USERS, Some("stranger"), Err("there is no user stranger")),
    ] {
        let wanted: Option<ProxyUser> = wanted.map(|text| text.parse().unwrap());
        match (find(wanted.as_ref(), users), found) {
            (Ok(user), Ok((uid, gid))) => assert_eq!(user, User { uid, gid }),
            (Err(why), Err(said)) => assert!(why.contains(said), "{wanted:?}: {why}"),
            (found, expected) => panic!("{wanted:?}: {found:?}, not {expected:?}"),
        }
    }
}

#[test]
fn what_names_no_user_is_refused() {
    for wrong in ["", ":1", "mesh:group", "1:2:3", "-1"] {
        assert!(wrong.parse::<ProxyUser>().is_err(), "{wrong}");
    }
    let handed = User { uid: 7, gid: 8 }.to_string().parse::<User>();
    assert_eq!(handed, Ok(User { uid: 7, gid: 8 }));
    assert!("0:8".parse::<User>().is_err());
}
