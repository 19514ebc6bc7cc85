//! Conversions from types of the authority to protocol messages.

use heddle_xds::proto;
use rustls_pki_types::CertificateDer;

use heddle_authority::{Bundle, Denied, DenyList, Issued};

pub(super) fn certificate(issued: &Issued) -> proto::Certificate {
    proto::Certificate {
        chain: bytes(&issued.chain),
        not_after: issued.not_after,
    }
}

pub(super) fn bundle(bundle: &Bundle) -> proto::Bundle {
    proto::Bundle {
        generation: bundle.generation,
        roots: bytes(&bundle.roots),
    }
}

pub(super) fn deny_list(list: &DenyList) -> proto::DenyList {
    use proto::deny_entry::What;
    let entries = list.entries().map(|(what, entry)| proto::DenyEntry {
        what: Some(match what {
            Denied::Serial(serial) => What::Serial(serial.as_bytes().to_vec()),
            Denied::Identity(id) => What::SpiffeId(id.to_string()),
        }),
        expires: entry.expires,
    });
    proto::DenyList {
        generation: list.generation,
        entries: entries.collect(),
    }
}

fn bytes(certificates: &[CertificateDer<'static>]) -> Vec<Vec<u8>> {
    certificates.iter().map(|der| der.to_vec()).collect()
}
