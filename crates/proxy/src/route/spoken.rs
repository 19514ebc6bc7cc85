//! Which protocol a connection is to speak, as far as that is known before it has said anything.

use heddle_model::AppProtocol;
use heddle_wire::preface::Kind;

use super::Snapshot;
use crate::door::Door;

/// What is known of a connection's protocol before it has said anything.
pub(crate) enum Spoken {
    Http,
    Opaque,
    Unknown,
}

impl Snapshot {
    /// The protocol of a door, in the order: what the port declares, then whether it has rules, which
    /// only HTTP can be judged by. A forward proxy is spoken to in HTTP.
    pub(crate) fn spoken(&self, door: &Door) -> Spoken {
        let Some(index) = self.port_of(&door.entry) else {
            // A forward proxy; or what it leads to is gone, and a client that asks in HTTP is told so.
            return Spoken::Http;
        };
        let entry = self.port(index);
        // A request that another node sends is one, whatever routes there are here.
        let says_http = door
            .inbound()
            .is_some_and(|inbound| inbound.kind == Kind::Http);
        match entry.protocol {
            AppProtocol::Tcp | AppProtocol::Tls => Spoken::Opaque,
            // HTTP/2 is not spoken here, but nothing keeps two programs from speaking it through us.
            AppProtocol::Http2Cleartext | AppProtocol::Grpc
                if !says_http && entry.routes(door.namespace()).is_none() =>
            {
                Spoken::Opaque
            }
            AppProtocol::Undeclared if !says_http && entry.routes(door.namespace()).is_none() => {
                Spoken::Unknown
            }
            _ => Spoken::Http,
        }
    }
}
