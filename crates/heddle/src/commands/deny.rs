//! `heddle deny`.

use std::time::Duration;

use heddle_model::SpiffeId;
use heddle_model::calendar::{self, utc};
use heddle_model::printable;
use heddle_node::exit::{Exit, Failure};
use heddle_node::table;
use heddle_node::time;

use super::Asked;
use crate::order::{Changed, DenyStatus, Order};

/// Shut an identity or a certificate out before it expires
///
/// The deny-list is pushed to every node: identities on it get no certificates and no configuration, and are refused in
/// handshakes. When a node is lost, deny its identity, and those of the service accounts that ran on it if their keys
/// may be known.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: DenyCommand,
}

#[derive(Debug, clap::Subcommand)]
enum DenyCommand {
    /// Put an identity or the serial number of a certificate on the list
    #[command(after_help = "Examples:
  heddle deny add spiffe://cluster.local/heddle/node/edge-1 --reason 'stolen on 3 May'
  heddle deny add spiffe://cluster.local/ns/shop/sa/cart --reason 'key leaked' --ttl 7d
  heddle deny add 81b1f2…32 hexadecimal digits…0c --reason test --until 2030-01-01T00:00:00Z

Exit codes:
  0  done
  1  failed, or the control plane refuses
  2  wrong command line
  4  no running heddle answers on the admin socket")]
    Add {
        /// A SPIFFE id, or a serial number: hexadecimal digits, as openssl prints them, of at most 16 bytes
        #[arg(value_name = "SPIFFE-ID|SERIAL", value_parser = id_or_serial)]
        what: String,
        /// Why, for operators who wonder later: at most 256 bytes
        #[arg(long, value_name = "TEXT")]
        reason: String,
        /// Until when, as in 2030-01-01T00:00:00Z [default: ten years for an identity, 90 days for a
        /// certificate, which none outlives]
        #[arg(long, value_name = "TIME", value_parser = point_in_time, conflicts_with = "ttl")]
        until: Option<u64>,
        /// For how long, such as 7d
        #[arg(long, alias = "life", value_name = "DURATION", value_parser = time::parse)]
        ttl: Option<Duration>,
        #[command(flatten)]
        asked: Asked,
    },
    /// List what is refused, until when, and why
    #[command(after_help = "Exit codes: as for `heddle deny add`")]
    List {
        #[command(flatten)]
        asked: Asked,
    },
    /// Take an identity or a serial number off the list
    #[command(after_help = "Exit codes: as for `heddle deny add`")]
    Remove {
        /// As `heddle deny list` shows it
        #[arg(value_name = "SPIFFE-ID|SERIAL", value_parser = id_or_serial)]
        what: String,
        #[command(flatten)]
        asked: Asked,
    },
}

/// Digits of the longest serial number: 20 bytes (RFC 5280 section 4.1.2.2).
const MAX_SERIAL_DIGITS: usize = 40;

fn point_in_time(text: &str) -> Result<u64, String> {
    let seconds = calendar::parse(text).and_then(|seconds| u64::try_from(seconds).ok());
    seconds.ok_or_else(|| format!("`{text}` is no time, expected such as 2030-01-01T00:00:00Z"))
}

/// Checked here so that a mistake counts as a wrong command line; the control plane checks it again.
fn id_or_serial(text: &str) -> Result<String, String> {
    let digits = text.replace(':', "");
    let is_serial = (1..=MAX_SERIAL_DIGITS).contains(&digits.len())
        && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_right = SpiffeId::parse(text).is_ok() || is_serial;
    match is_right {
        true => Ok(text.to_owned()),
        false => Err(
            "neither a SPIFFE id nor a serial number: write spiffe://DOMAIN/ns/NAMESPACE/sa/NAME, \
             spiffe://DOMAIN/heddle/node/NAME or 1 to 40 hexadecimal digits"
                .to_owned(),
        ),
    }
}

pub(crate) fn run(args: Args) -> Result<Exit, Failure> {
    match args.command {
        DenyCommand::Add {
            what,
            reason,
            until,
            ttl,
            asked,
        } => {
            let until = until.or_else(|| Some(now_s().saturating_add(ttl?.as_secs())));
            let added: DenyStatus = asked.order(&Order::DenyAdd {
                what,
                reason,
                until,
            })?;
            asked.show(&added, |added| {
                let what = printable(&added.what);
                let until = utc(added.until);
                let workloads = match added.what.contains("/heddle/node/") {
                    true => {
                        "its workloads have identities of their own: deny those of their service accounts, too\n"
                    }
                    false => "",
                };
                format!("{what} is refused until {until}\n{workloads}")
            })
        }
        DenyCommand::List { asked } => {
            let denied: Vec<DenyStatus> = asked.order(&Order::DenyList)?;
            asked.show(&denied, |denied| list(denied))
        }
        DenyCommand::Remove { what, asked } => {
            let changed: Changed = asked.order(&Order::DenyRemove { what: what.clone() })?;
            asked.show(&changed, |_| {
                format!("{} is not refused any more\n", printable(&what))
            })
        }
    }?;
    Ok(Exit::Ok)
}

/// Seconds since 1970; the control plane runs on this machine and has the same clock.
fn now_s() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

fn list(denied: &[DenyStatus]) -> String {
    let rows = denied.iter().map(|denied| {
        let DenyStatus {
            what,
            reason,
            until,
        } = denied;
        [what.clone(), utc(*until), reason.clone()]
    });
    table::render(["WHAT", "UNTIL", "REASON"], rows)
}

#[cfg(test)]
mod tests {
    use super::point_in_time;

    #[test]
    fn a_time_is_read_as_it_is_shown() {
        assert_eq!(point_in_time("2030-01-01T00:00:00Z"), Ok(1_893_456_000));
        for wrong in ["", "tomorrow", "2030-01-01", "1969-12-31T23:59:59Z"] {
            assert!(point_in_time(wrong).is_err(), "{wrong}");
        }
    }
}
