//! The TLS parameters that nodes use: TLS 1.3, and the order of cipher suites.

use std::sync::{Arc, LazyLock};

use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::{cipher_suite, default_provider};

/// The TLS 1.3 cipher suites, fastest on this machine first. Key exchange in the order of rustls: a hybrid that a
/// future quantum computer cannot break, then X25519.
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

/// Whether the processor has AES instructions.
fn has_aes() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("aes");
    #[cfg(target_arch = "aarch64")]
    return std::arch::is_aarch64_feature_detected!("aes");
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    return false;
}
