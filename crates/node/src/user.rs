//! The unprivileged user that a holder's proxy runs as. Only the node's state folder belongs to it.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::str::FromStr;

use rustix::process::geteuid;

#[cfg(test)]
mod tests;

/// User name that is used by default, if the system has it.
const NAME: &str = "heddle";
/// Default user id otherwise. Nothing assigns it: it is above the range that systemd uses for services without a user
/// (61184 to 65519), and in the range that Debian reserves (65000 to 65533). `nobody` is not safe: other services run
/// as it too, and could then read the node's keys.
pub(super) const RESERVED: u32 = 65_523;
/// Users of this machine (passwd(5)). Users of a directory service have to be given by number.
const USERS: &str = "/etc/passwd";
/// Most bytes that are read of [`USERS`].
const MAX_USERS: u64 = 4 * 1024 * 1024;

/// Ids of a user and its group; neither is root's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

impl User {
    fn new(uid: u32, gid: u32) -> Result<User, String> {
        // The kernel does not accept u32::MAX as an id; old kernels did not accept u16::MAX.
        let is_none = |id: u32| id == u32::from(u16::MAX) || id == u32::MAX;
        match (uid, gid) {
            (0, _) | (_, 0) => {
                Err("the proxy is to be neither root nor of root's group".to_owned())
            }
            (uid, gid) if is_none(uid) || is_none(gid) => {
                Err(format!("{uid}:{gid} is no user and group"))
            }
            (uid, gid) => Ok(User { uid, gid }),
        }
    }
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.uid, self.gid)
    }
}

impl FromStr for User {
    type Err = String;

    fn from_str(text: &str) -> Result<User, String> {
        let numbers = text.split_once(':').and_then(|(uid, gid)| {
            let numbers = (uid.parse().ok()?, gid.parse().ok()?);
            Some(numbers)
        });
        let (uid, gid) = numbers.ok_or("expected UID:GID")?;
        User::new(uid, gid)
    }
}

/// A user as given by an operator: name or id, and optionally a group id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProxyUser {
    who: NameOrUid,
    gid: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum NameOrUid {
    Name(String),
    Uid(u32),
}

impl fmt::Display for ProxyUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.who {
            NameOrUid::Name(name) => f.write_str(name)?,
            NameOrUid::Uid(uid) => uid.fmt(f)?,
        }
        self.gid.map_or(Ok(()), |gid| write!(f, ":{gid}"))
    }
}

impl FromStr for ProxyUser {
    type Err = String;

    fn from_str(text: &str) -> Result<ProxyUser, String> {
        let form = "expected NAME, UID or UID:GID, such as heddle or 2000:2000";
        let (who, gid) = match text.split_once(':') {
            Some((who, gid)) => (who, Some(gid.parse().map_err(|_| form)?)),
            None => (text, None),
        };
        let who = match who.parse() {
            Ok(uid) => NameOrUid::Uid(uid),
            Err(_) if who.is_empty() || who.starts_with('-') => return Err(form.to_owned()),
            Err(_) => NameOrUid::Name(who.to_owned()),
        };
        Ok(ProxyUser { who, gid })
    }
}

/// The user of the proxy; `None` for the holder's own, if that is not root.
///
/// # Errors
/// When there is no such user, it is root, or the holder cannot give its proxy another user.
pub(super) fn of_proxy(wanted: Option<&ProxyUser>) -> Result<Option<User>, String> {
    match (geteuid().is_root(), wanted) {
        (false, None) => Ok(None),
        (false, Some(_)) => Err(
            "--proxy-user is for a holder that is root: leave it out, and the proxy runs as the user of the \
             holder"
                .to_owned(),
        ),
        (true, wanted) => find(wanted, &users()).map(Some),
    }
}

/// Reads the users. A missing or unreadable file counts as empty.
fn users() -> String {
    let mut bytes = Vec::new();
    let read = File::open(USERS).and_then(|file| file.take(MAX_USERS).read_to_end(&mut bytes));
    match read {
        Ok(_) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(_) => String::new(),
    }
}

fn find(wanted: Option<&ProxyUser>, users: &str) -> Result<User, String> {
    let entries = || users.lines().filter_map(entry);
    let named = |name: &str| entries().find(|(known, ..)| *known == name);
    let Some(ProxyUser { who, gid }) = wanted else {
        return match named(NAME) {
            Some((_, uid, gid)) => User::new(uid, gid)
                .map_err(|why| format!("{why}, which the user {NAME} is in {USERS}: name another")),
            None => User::new(RESERVED, RESERVED),
        };
    };
    let (uid, own_gid) = match who {
        NameOrUid::Name(name) => match named(name) {
            Some((_, uid, gid)) => (uid, gid),
            None => {
                return Err(format!(
                    "there is no user {name} in {USERS}: name one that is there, or its numbers, as in \
                     --proxy-user 2000:2000"
                ));
            }
        },
        NameOrUid::Uid(uid) => {
            let known = entries().find(|(_, known, _)| known == uid);
            (*uid, known.map_or(*uid, |(_, _, gid)| gid))
        }
    };
    User::new(uid, gid.unwrap_or(own_gid)).map_err(|why| format!("--proxy-user: {why}"))
}

/// Name, user id and group id of one line.
fn entry(line: &str) -> Option<(&str, u32, u32)> {
    let mut fields = line.split(':');
    let name = fields.next().filter(|name| !name.is_empty())?;
    let _password = fields.next()?;
    let mut number = || fields.next()?.parse().ok();
    Some((name, number()?, number()?))
}
