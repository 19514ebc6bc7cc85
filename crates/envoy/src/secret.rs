//! Secrets: the workload's certificate and key, and the roots.

use envoy_types::pb::envoy::config::core::v3::DataSource;
use envoy_types::pb::envoy::config::core::v3::data_source::Specifier;
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::secret::Type;
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::{
    CertificateValidationContext, Secret, TlsCertificate,
};

use crate::Packed;
pub use crate::names::{LEAF, ROOTS};

/// The certificate chain and the private key of a workload, in PEM.
pub fn leaf(chain: String, key: &str) -> Packed {
    let certificate = TlsCertificate {
        certificate_chain: Some(inline(chain)),
        private_key: Some(inline(key.to_owned())),
        ..TlsCertificate::default()
    };
    packed(LEAF, Type::TlsCertificate(certificate))
}

/// The roots of the mesh, in PEM.
pub fn roots(roots: String) -> Packed {
    let validation = CertificateValidationContext {
        trusted_ca: Some(inline(roots)),
        ..CertificateValidationContext::default()
    };
    packed(ROOTS, Type::ValidationContext(validation))
}

fn packed(name: &str, secret: Type) -> Packed {
    Packed::new(&Secret {
        name: name.to_owned(),
        r#type: Some(secret),
    })
}

fn inline(text: String) -> DataSource {
    DataSource {
        specifier: Some(Specifier::InlineString(text)),
        ..DataSource::default()
    }
}
