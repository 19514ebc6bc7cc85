//! Executes operators' orders to the authority.

use std::fmt::Display;
use std::fs::File;
use std::io::Read;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use heddle_authority::{
    Authority, CertificateRequest, Denied, DenyEntry, MAX_DENY_LIFE, NextRoot, RotationRefusal,
    Serial, Stage, UnixTime,
};
use heddle_control::{Board, Envoys, Nodes};
use heddle_model::calendar::utc;
use heddle_model::printable;
use heddle_model::{NodeName, SpiffeId};
use heddle_node::admin::Answer;
use heddle_transport::hex;
use heddle_transport::secrets::TokenId;
use serde::Serialize;
use serde_json::Value;
use zeroize::Zeroizing;

use crate::order::{
    Changed, DenyStatus, Order, RootStage, RootStatus, SiteSigned, SuppliedRoot, TokenCreated,
    TokenStatus,
};

mod envoy;
#[cfg(test)]
mod tests;

/// How long a serial number is denied by default: no leaf lives longer.
const SERIAL_LIFE_S: u64 = 90 * 86_400;
/// Longest file with a certificate or a key in it, in bytes.
const MAX_PEM_BYTES: usize = 64 * 1024;
/// Digits of the longest serial number that a certificate may have (RFC 5280 section 4.1.2.2).
const MAX_SERIAL_DIGITS: usize = 40;

/// Parses an order from JSON.
///
/// # Errors
/// The answer when the JSON is not an order.
pub(super) fn parse(order: Value) -> Result<Order, Answer> {
    serde_json::from_value(order).map_err(|error| Answer::text(400, format!("no order: {error}")))
}

/// Executes an order and returns the answer. It writes to the disk, so it blocks.
pub(super) fn execute(orders: &Orders<'_>, order: Order) -> Answer {
    let done = match order {
        Order::TokenCreate { node, ttl_s } => orders.create_token(&node, ttl_s),
        Order::TokenList => orders.tokens(),
        Order::TokenRevoke { id } => orders.revoke_token(&id),
        Order::RootStatus => answer(&orders.root()),
        Order::RootRotate { force, supplied } => orders.rotate(force, supplied.as_ref()),
        Order::RootCancel => orders.cancel(),
        Order::DenyAdd {
            what,
            reason,
            until,
        } => orders.deny(&what, reason, until),
        Order::DenyList => orders.denied(),
        Order::DenyRemove { what } => orders.allow(&what),
        Order::SiteSign { request, ttl_s } => orders.sign_site(&request, ttl_s),
        Order::EnvoyLink { workload, ttl_s } => orders.link_envoy(&workload, ttl_s),
        Order::Dependencies { workload } => orders.dependencies(&workload),
    };
    done.unwrap_or_else(|Refused(why)| Answer::text(409, why))
}

/// Why an order is refused, and the remedy.
struct Refused(String);

type Done = Result<Answer, Refused>;

fn refused(why: impl Display) -> Refused {
    Refused(why.to_string())
}

fn answer(value: &impl Serialize) -> Done {
    Ok(Answer::json(value))
}

/// What orders are executed with.
pub(super) struct Orders<'a> {
    pub(super) authority: &'a Authority,
    pub(super) nodes: &'a Nodes,
    pub(super) board: &'a Board,
    pub(super) envoys: &'a Envoys,
    /// Where the control plane listens.
    pub(super) listen: SocketAddr,
    pub(super) now: UnixTime,
}

impl Orders<'_> {
    fn create_token(&self, node: &str, ttl_s: u64) -> Done {
        let node = NodeName::parse(node).map_err(|error| {
            refused(format!("{error} (use a-z, 0-9, '-' and '.', as in edge-1)"))
        })?;
        let id = SpiffeId::node(self.authority.trust_domain().clone(), node.clone());
        if id.server_name().is_none() {
            return Err(refused(
                "the node's name is too long for a TLS server name (shorten it)",
            ));
        }
        let denied = self.authority.trust().denied;
        if denied.denies(&id, None, self.now).is_some() {
            return Err(refused(format!(
                "{node} is on the deny-list and could not join (first `heddle deny remove {id}`)"
            )));
        }
        let life = Duration::from_secs(ttl_s);
        let token = self.authority.create_token(&node, life, self.now);
        let token = token.map_err(refused)?;
        tracing::info!(%node, id = %token.id, "a join token was made");
        answer(&TokenCreated {
            id: token.id.to_string(),
            node: node.to_string(),
            expires: self.now.as_secs().saturating_add(ttl_s),
            token: token.to_text(),
        })
    }

    fn tokens(&self) -> Done {
        let tokens = self.authority.tokens(self.now);
        let status = tokens.into_iter().map(|token| TokenStatus {
            id: token.id.to_string(),
            node: token.node.to_string(),
            created: token.created,
            expires: token.expires,
        });
        answer(&status.collect::<Vec<_>>())
    }

    fn revoke_token(&self, id: &str) -> Done {
        let unknown = || {
            refused(format!(
                "there is no token {} (heddle token list shows those that were not used)",
                printable(id)
            ))
        };
        // An operator may paste the whole token by mistake: it is secret, so it is not echoed.
        if id.contains('.') {
            return Err(refused(
                "this is no token's id (it is what is between heddle- and the first dot)",
            ));
        }
        let id = TokenId::parse(id).ok_or_else(unknown)?;
        let changed = self.authority.revoke_token(&id).map_err(refused)?;
        if !changed {
            return Err(unknown());
        }
        tracing::info!(%id, "a join token was revoked");
        answer(&Changed { changed })
    }

    fn root(&self) -> RootStatus {
        root_status(self.authority, self.nodes, self.now)
    }

    fn rotate(&self, force: bool, supplied: Option<&SuppliedRoot>) -> Done {
        let stage = |orders: &Self| orders.authority.rotation([], |_| None).stage;
        let joined = stage(self) != Stage::Steady;
        if supplied.is_some() && joined {
            return Err(refused(
                "a rotation is under way already (leave --certificate and --key out to go on with it)",
            ));
        }
        if !joined {
            let begun = match supplied {
                None => self.authority.begin_rotation(&NextRoot::Make, self.now),
                Some(SuppliedRoot { certificate, key }) => {
                    let next = NextRoot::Supply {
                        certificate: &read(certificate)?,
                        key: &read(key)?,
                    };
                    self.authority.begin_rotation(&next, self.now)
                }
            };
            begun.map_err(refused)?;
            tracing::info!("a rotation has begun: every node is told to trust a new root, too");
        }
        match (stage(self), force) {
            (Stage::Begun, true) => {
                let missed = self.root().waits_for;
                let switched = self.authority.switch_rotation(&[], true, self.now);
                switched.map_err(refused)?;
                tracing::warn!(
                    ?missed,
                    "the new root signs, by force: nodes that missed it have to join again"
                );
            }
            (Stage::Switched, true) if joined => {
                let finished = self.authority.finish_rotation(&[], true, self.now);
                finished.map_err(refused)?;
                tracing::warn!("the old root is not trusted any more, by force");
            }
            _ => {}
        }
        answer(&RootStatus {
            joined,
            ..self.root()
        })
    }

    fn cancel(&self) -> Done {
        self.authority.cancel_rotation().map_err(|error| match error {
            RotationRefusal::Order(Stage::Steady) => refused("no rotation is under way"),
            RotationRefusal::Order(_) => refused(
                "the new root signs already: there is no way back (to be rid of it, rotate again when \
                 this rotation is over)",
            ),
            other => refused(other),
        })?;
        tracing::info!("the rotation was given up: the old root is trusted alone");
        answer(&self.root())
    }

    fn deny(&self, what: &str, reason: String, until: Option<u64>) -> Done {
        let what = denied(what)?;
        let life = match &what {
            Denied::Serial(_) => SERIAL_LIFE_S,
            Denied::Identity(_) => MAX_DENY_LIFE.as_secs(),
        };
        if let Denied::Identity(id) = &what
            && id.trust_domain != *self.authority.trust_domain()
        {
            return Err(refused(format!(
                "{id} is of another trust domain and refused already (this one is {})",
                self.authority.trust_domain()
            )));
        }
        let until = until.unwrap_or(self.now.as_secs().saturating_add(life));
        let entry = DenyEntry {
            reason: reason.clone(),
            expires: until,
        };
        let done = self.authority.deny(what.clone(), entry, self.now);
        done.map_err(refused)?;
        tracing::info!(%what, reason, "denied until {}", utc(until));
        answer(&deny_status(&what, reason, until))
    }

    fn denied(&self) -> Done {
        let trust = self.authority.trust();
        let alive = trust.denied.entries();
        let alive = alive.filter(|(_, entry)| self.now.as_secs() < entry.expires);
        let status =
            alive.map(|(what, entry)| deny_status(what, entry.reason.clone(), entry.expires));
        answer(&status.collect::<Vec<_>>())
    }

    fn allow(&self, what: &str) -> Done {
        let what = denied(what)?;
        let changed = self.authority.allow(&what, self.now).map_err(refused)?;
        if !changed {
            return Err(refused(format!(
                "{what} is not on the deny-list (heddle deny list shows what is)"
            )));
        }
        tracing::info!(%what, "denied no longer");
        answer(&Changed { changed })
    }

    fn sign_site(&self, request: &str, ttl_s: u64) -> Done {
        let request = CertificateRequest::parse_pem(request.as_bytes()).map_err(|fault| {
            refused(format!(
                "{fault} (heddle site request makes one, at the site)"
            ))
        })?;
        let life = Duration::from_secs(ttl_s);
        let signed = self.authority.sign_site(&request, life, self.now);
        let signed = signed.map_err(refused)?;
        tracing::info!(
            not_after = signed.not_after,
            "a site's intermediate was signed"
        );
        answer(&SiteSigned {
            intermediate_pem: signed.intermediate_pem,
            roots_pem: signed.roots_pem,
            not_after: signed.not_after,
        })
    }
}

/// Reads a file that may contain a key.
fn read(path: &Path) -> Result<Zeroizing<Vec<u8>>, Refused> {
    let failed = |error: std::io::Error| {
        let name = path.display().to_string();
        refused(format!(
            "cannot read {}: {error} (the control plane reads it, as its own user)",
            printable(&name)
        ))
    };
    // The buffer must not grow: reallocation would leave copies of a key in memory.
    let mut bytes = Zeroizing::new(Vec::with_capacity(MAX_PEM_BYTES + 1));
    let file = File::open(path).map_err(failed)?;
    let within = u64::try_from(MAX_PEM_BYTES).unwrap_or(u64::MAX);
    let length = file
        .take(within + 1)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    match length > MAX_PEM_BYTES {
        true => Err(refused(
            "a file is longer than any certificate or key in PEM",
        )),
        false => Ok(bytes),
    }
}

fn denied(text: &str) -> Result<Denied, Refused> {
    if let Ok(id) = SpiffeId::parse(text) {
        return Ok(Denied::Identity(id));
    }
    let unknown = || {
        refused(format!(
            "{} is neither a SPIFFE id nor a serial number (write spiffe://DOMAIN/ns/NAMESPACE/sa/NAME, \
             spiffe://DOMAIN/heddle/node/NAME or 1 to 40 hexadecimal digits)",
            printable(text)
        ))
    };
    // openssl prints serial numbers with colons.
    let digits = text.replace(':', "");
    if digits.len() > MAX_SERIAL_DIGITS || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(unknown());
    }
    let digits = digits.trim_start_matches('0');
    if digits.is_empty() {
        return Err(unknown());
    }
    // Other authorities' serial numbers have up to 20 bytes; those of the deny-list have 16.
    let number = u128::from_str_radix(digits, 16).map_err(|_| {
        refused(format!(
            "{} is longer than the 16 bytes of the serial numbers that the deny-list takes (deny the identity of \
             the certificate instead: its spiffe:// name)",
            printable(text)
        ))
    })?;
    let serial = Serial::from_be_bytes(&number.to_be_bytes());
    serial.map(Denied::Serial).ok_or_else(unknown)
}

fn deny_status(what: &Denied, reason: String, until: u64) -> DenyStatus {
    let what = match what {
        Denied::Serial(serial) => serial.to_string(),
        Denied::Identity(id) => id.to_string(),
    };
    DenyStatus {
        what,
        reason,
        until,
    }
}

/// State of the root and of a rotation.
pub(super) fn root_status(authority: &Authority, nodes: &Nodes, now: UnixTime) -> RootStatus {
    let confirmed = |node: &_| nodes.confirmed(node).map(|confirmed| confirmed.bundle);
    let status = authority.rotation_of_members(confirmed, now);
    let digest = authority.root_sha256();
    let unconfirmed = status.unconfirmed.iter().map(ToString::to_string).collect();
    // Confirmations are not stored on disk: after a start, nodes that are away count as unconfirmed.
    let (waits_for, unheard) = match status.stage {
        Stage::Steady => (Vec::new(), unconfirmed),
        Stage::Begun | Stage::Switched => (unconfirmed, Vec::new()),
    };
    RootStatus {
        stage: match status.stage {
            Stage::Steady => RootStage::Steady,
            Stage::Begun => RootStage::Begun,
            Stage::Switched => RootStage::Switched,
        },
        began_at: status.began_at,
        joined: false,
        generation: status.generation,
        sha256: hex::encode(&digest),
        site: authority.is_site(),
        expires: authority.expires(),
        nodes: status.nodes,
        waits_for,
        unheard,
        old_until: status.old_until,
        finish_from: status.finish_from,
        now: now.as_secs(),
    }
}
