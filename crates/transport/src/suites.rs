//! What nodes agree on: TLS 1.3, and which ciphers first.

use std::sync::{Arc, LazyLock};

use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::{cipher_suite, default_provider};

/// The ciphers of TLS 1.3, those first that this machine computes fastest. Key exchange as the library
/// prefers it: a hybrid that a quantum computer does not break later, then X25519.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: LazyLock<Arc<CryptoProvider>> = LazyLock::new(|| {
        let aes = [
            cipher_suite::TLS13_AES_128_GCM_SHA256,
            cipher_suite::TLS13_AES_256_GCM_SHA384,
        ];
        let chacha = cipher_suite::TLS13_CHACHA20_POLY1305_SHA256;
        let mut suites = Vec::from(aes);
        suites.insert(if has_aes() { 2 } else { 0 }, chacha);
        Arc::new(CryptoProvider {
            cipher_suites: suites,
            ..default_provider()
        })
    });
    Arc::clone(&PROVIDER)
}

/// Whether the processor computes AES by itself.
fn has_aes() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("aes");
    #[cfg(target_arch = "aarch64")]
    return std::arch::is_aarch64_feature_detected!("aes");
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    return false;
}
