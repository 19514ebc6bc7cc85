//! The load report of a lazy Envoy.

use std::collections::BTreeSet;

use heddle_xds::delta::Name;
use prost::bytes::{Buf, BufMut};
use prost::encoding::{DecodeContext, WireType, message, skip_field, uint64};
use prost::{DecodeError, Message};

use crate::names::{GATEWAY, service_of};

#[cfg(test)]
mod tests;

/// What an Envoy has sent since its last report: the `cluster_stats` of a `LoadStatsRequest`.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Load {
    /// The Services with requests or open connections, as `NAMESPACE/NAME`.
    pub busy: BTreeSet<Name>,
    /// Requests, and connections that carry bytes, that it has sent directly.
    pub direct: u64,
    /// Those that it has sent to gateways.
    pub by_gateway: u64,
}

/// `ClusterStats`.
#[derive(Clone, PartialEq, Message)]
struct Cluster {
    #[prost(string, tag = "1")]
    name: String,
    /// Of all localities together.
    #[prost(message, required, tag = "2")]
    localities: Sum,
}

/// The sum of all `UpstreamLocalityStats` that are merged into it.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Sum {
    in_progress: u64,
    issued: u64,
}

impl Load {
    fn add(&mut self, cluster: &Cluster) {
        let Sum {
            in_progress,
            issued,
        } = cluster.localities;
        if cluster.name == GATEWAY {
            self.by_gateway = self.by_gateway.saturating_add(issued);
        } else if let Some(service) = service_of(&cluster.name) {
            self.direct = self.direct.saturating_add(issued);
            if issued > 0 || in_progress > 0 {
                self.busy.insert(Name::from(service));
            }
        }
    }
}

/// Read only.
impl Message for Load {
    fn merge_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        buf: &mut impl Buf,
        context: DecodeContext,
    ) -> Result<(), DecodeError> {
        match tag {
            2 => {
                let mut cluster = Cluster::default();
                message::merge(wire_type, &mut cluster, buf, context)?;
                self.add(&cluster);
                Ok(())
            }
            _ => skip_field(wire_type, tag, buf, context),
        }
    }

    fn encode_raw(&self, _: &mut impl BufMut) {}

    fn encoded_len(&self) -> usize {
        0
    }

    fn clear(&mut self) {
        *self = Self::default();
    }
}

/// Read only.
impl Message for Sum {
    fn merge_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        buf: &mut impl Buf,
        context: DecodeContext,
    ) -> Result<(), DecodeError> {
        let sum = match tag {
            3 => &mut self.in_progress,
            8 => &mut self.issued,
            _ => return skip_field(wire_type, tag, buf, context),
        };
        let mut more = 0;
        uint64::merge(wire_type, &mut more, buf, context)?;
        *sum = sum.saturating_add(more);
        Ok(())
    }

    fn encode_raw(&self, _: &mut impl BufMut) {}

    fn encoded_len(&self) -> usize {
        0
    }

    fn clear(&mut self) {
        *self = Self::default();
    }
}
