//! What Envoys report: gateways, what their callers use; lazy Envoys, what they use without a gateway.
//!
//! Only what is used of each message has a field here, and what can be added up is added up while it is read: a message takes
//! hardly more memory than its bytes, whatever it says. Sources: `envoy/service/accesslog/v3/als.proto`,
//! `envoy/service/load_stats/v3/lrs.proto`, and what they include.

mod access;
mod load;

pub use access::Accesses;
pub use load::Load;
