//! The protocol of a connection, as far as it is known before the first byte.

use heddle_model::AppProtocol;
use heddle_wire::preface::Kind;

use super::Snapshot;
use crate::door::Door;

pub(crate) enum Spoken {
    Http,
    Opaque,
    Unknown,
}

impl Snapshot {
    /// The protocol of a door: first what the port declares, then whether it has rules, which apply only to HTTP. A
    /// forward proxy speaks HTTP.
    pub(crate) fn spoken(&self, door: &Door) -> Spoken {
        let Some(index) = self.port_of(&door.entry) else {
            // Either a forward proxy, or the destination no longer exists: then an HTTP client gets an answer that says
            // so.
            return Spoken::Http;
        };
        let entry = self.port(index);
        // A request from another node is HTTP, whatever routes there are here.
        let says_http = door
            .inbound()
            .is_some_and(|inbound| inbound.kind == Kind::Http);
        match entry.protocol {
            AppProtocol::Tcp | AppProtocol::Tls => Spoken::Opaque,
            // The proxy does not parse HTTP/2 here, but passes it on as opaque bytes.
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
