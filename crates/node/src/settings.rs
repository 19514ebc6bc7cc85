//! The process's settings: one typed YAML file. Every field is optional; unknown fields are refused.
//!
//! The mesh itself is described by manifests; settings only say how one process serves it. The type of each field has
//! its unit and its range, so a value out of range is reported with its line like any other mistake. `docs/settings.md`
//! describes every field.

mod contradiction;
mod control;
mod error;
mod file;
mod flags;
mod given;
mod metrics;
mod node;
#[cfg(test)]
mod page;
mod proxy;
mod qos;
mod registry;
mod source;
#[cfg(test)]
mod tests;
mod text;
mod within;

pub use control::Control;
pub use error::SettingsError;
pub use file::{LogFormat, LogLevel, MeshSettings, Settings};
pub use flags::{LogFlags, ServingFlags};
pub use given::GivenSettings;
pub use metrics::Metrics;
pub use node::{BPFFS, NodeSettings};
pub(crate) use node::{DiscoveryMode, Interception, ProxyTimeout};
pub use qos::{
    EvictionMode, KubeletSettings, KubeletUrl, QosNetworkSettings, QosSettings, TurboMode,
};
pub use registry::RegistrySettings;
pub(crate) use text::Text;
pub use within::Within;
