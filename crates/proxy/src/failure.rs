//! The reasons why a request fails: who is to blame, whether a retry is safe, and what the client is told.
//!
//! Failing code gives a [`Reason`]; this table says what the reason means. One place (`collaborator::respond`) turns it
//! into a response. The reason code is shown in the metrics `heddle_requests_rejected_total` and
//! `heddle_tcp_connections_failed_total`, in the access log and in the response field `heddle-reason`.

mod stream;

use heddle_wire::http1::Reject;
use heddle_wire::preface::Status;

pub(crate) use stream::StreamFailure;

/// The party that caused a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blame {
    /// The client, by its request or its connection.
    Downstream,
    /// The endpoint, which failed or did not answer in time.
    Upstream,
    /// Another node, or the network path to it.
    Node,
    /// This proxy: its configuration, or one of its limits.
    Heddle,
}

impl Blame {
    /// The stable name in the access log.
    pub fn as_str(self) -> &'static str {
        match self {
            Blame::Downstream => "downstream",
            Blame::Upstream => "upstream",
            Blame::Node => "node",
            Blame::Heddle => "heddle",
        }
    }

    /// The party as this node sees it, if another node has reported it: a node that blames itself is `Node` here.
    pub(crate) fn of_another_node(self) -> Self {
        match self {
            Blame::Heddle => Blame::Node,
            other => other,
        }
    }
}

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $blame:ident, $status:literal, $retry:ident, $detail:literal;)*) => {
        /// The reason why a request or connection failed; its code appears in metrics, logs and responses.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Reason {
            $(#[doc = $detail] $name,)*
        }

        impl Reason {
            /// Every reason code, by [`Reason::index`].
            pub const CODES: &'static [&'static str] = &[$($code,)*];
            /// Every reason, in the order of [`Reason::CODES`].
            pub const EACH: &'static [Reason] = &[$(Reason::$name,)*];
            const ALL: &'static [(Blame, u16, Retry, &'static str)] =
                &[$((Blame::$blame, $status, Retry::$retry, $detail),)*];
        }
    };
}

/// Whether a failed request may be retried without informing the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// The request has not reached an endpoint.
    Safe,
    /// The request may have reached an endpoint: retried only if its method is idempotent (RFC 9110 section 9.2.2).
    IfIdempotent,
    /// Not retried: it would fail again, or an answer may have begun.
    Never,
}

reasons! {
    Malformed = "malformed", Downstream, 400, Never, "the request is malformed or ambiguous";
    HeadGrew = "head_grew_too_large", Downstream, 431, Never, "with what routes and this node add to it, the request's head is larger than can be sent on";
    HeadTimeout = "request_head_timeout", Downstream, 408, Never, "the request's head did not arrive in time";
    BodyTimeout = "request_body_timeout", Downstream, 408, Never, "the request's body stopped arriving";
    ClientGone = "client_gone", Downstream, 0, Never, "the client closed the connection before it had the answer";
    ClientStalled = "client_stalled", Downstream, 0, Never, "the client stopped reading the answer";
    ConnectMethod = "connect_not_supported", Downstream, 501, Never, "CONNECT is not supported";
    Upgrade = "upgrade_not_supported", Downstream, 501, Never, "upgrading by a request that has a body is not supported";
    ProtocolNotSupported = "protocol_not_supported", Heddle, 501, Never, "the port speaks a protocol that is not supported";
    CarriesBytes = "port_carries_bytes", Downstream, 501, Never, "the port carries bytes, not HTTP: dial its address, which heddle status shows";
    UnknownHost = "unknown_host", Downstream, 502, Never, "no Service of the mesh has this name";
    UnknownPort = "unknown_port", Downstream, 502, Never, "the Service has no such port";
    NotAtGateway = "gateway_destination_unknown", Downstream, 404, Never, "no Service has the address that the caller's proxy named to this gateway";
    NotForwardProxy = "absolute_form_expected", Downstream, 400, Never, "a forward proxy needs the whole URL, or a Host field that names a Service";
    PolicyDenied = "policy_denied", Downstream, 403, Never, "no policy allows it, or one denies it";
    PolicyRevoked = "policy_revoked", Downstream, 403, Never, "a change of the policies ended it";
    NoRoute = "no_route", Heddle, 404, Never, "no rule of the Service's routes matches";
    NoBackend = "backend_not_resolved", Heddle, 500, Never, "the route's backend does not exist or may not be used";
    NoEndpoint = "no_endpoint", Upstream, 503, Never, "the Service has no ready endpoint";
    ServiceGone = "service_gone", Heddle, 503, Never, "the Service is no longer configured";
    ConnectFailed = "upstream_connect_failed", Upstream, 503, Safe, "no endpoint accepted a connection";
    ConnectTimeout = "upstream_connect_timeout", Upstream, 504, Safe, "no endpoint accepted a connection in time";
    NodeConnectFailed = "node_connect_failed", Node, 503, Safe, "the other node cannot be reached, or accepts nothing more";
    NodeConnectTimeout = "node_connect_timeout", Node, 504, Safe, "the other node cannot be reached in time";
    IdentityMissing = "identity_missing", Heddle, 503, Never, "there is no valid certificate for the caller, so it cannot call other nodes";
    PeerRefused = "peer_refused", Node, 503, Safe, "the other node could not prove which workloads it hosts, or refused us";
    IdentityRevoked = "identity_revoked", Heddle, 503, Never, "a certificate that the connection depends on has expired or is no longer trusted";
    EndpointGone = "endpoint_gone", Heddle, 503, Never, "the endpoint is not on this node, or not a part of the Service any more";
    UpstreamOverflow = "upstream_overflow", Heddle, 503, Never, "every endpoint was at its connection limit for as long as connecting may take, or too many callers wait for a connection already";
    LinkFull = "link_full", Heddle, 503, Never, "the link to the other node had no room for another stream within the connect timeout";
    QueueFull = "upstream_queue_full", Heddle, 503, Never, "every endpoint has reached its request limit, and the limit of waiting requests is reached, too";
    QueueTimeout = "upstream_queue_timeout", Heddle, 503, Never, "every endpoint was at its request limit for as long as a request may wait";
    UpstreamReset = "upstream_reset", Upstream, 502, IfIdempotent, "the endpoint closed the connection before it answered";
    NodeReset = "node_reset", Node, 502, IfIdempotent, "the other node, not the endpoint, ended the exchange before there was an answer";
    LinkLost = "link_lost", Node, 502, Never, "the link to the other node was lost before there was an answer";
    UpstreamMalformed = "upstream_malformed", Upstream, 502, Never, "the endpoint's answer is malformed or ambiguous";
    UpstreamTruncated = "upstream_truncated", Upstream, 502, Never, "the endpoint's answer ended too early";
    UpstreamSwitched = "upstream_switched_protocols", Upstream, 502, Never, "the endpoint switched to a protocol that it was not offered";
    ResponseTimeout = "upstream_response_timeout", Upstream, 504, Never, "the endpoint did not answer in time";
    UpstreamStalled = "upstream_stalled", Upstream, 504, Never, "the endpoint stopped reading the request's body";
    RequestTimeout = "request_timeout", Upstream, 504, Never, "the route's time for the request ran out";
    StreamIdle = "stream_idle_timeout", Upstream, 504, Never, "the answer stopped arriving";
    ClientReset = "client_reset", Downstream, 0, Never, "the client reset an opaque connection";
    TcpIdle = "tcp_idle_timeout", Heddle, 0, Never, "no byte moved on an opaque connection for too long";
    DestinationUnknown = "original_destination_unknown", Heddle, 0, Never, "the original destination of an intercepted connection cannot be found out";
    WorkloadUnknown = "workload_not_in_mesh", Heddle, 0, Never, "the pod whose connection was intercepted is no workload of this node's mesh";
    PortElsewhere = "port_of_no_service", Downstream, 0, Never, "a workload of another node is only reached at a port that a Service has";
    DiscoveryTimeout = "discovery_timeout", Heddle, 503, Never, "the control plane did not say in time what the destination is";
    DiscoveryUnavailable = "discovery_unavailable", Heddle, 503, Never, "the control plane is away, and this node has not used the destination before";
    DiscoveryOverflow = "discovery_overflow", Heddle, 503, Never, "too many connections and requests of the caller wait for an answer of the control plane";
    DestinationUnreadable = "destination_unreadable", Heddle, 503, Never, "this node cannot read what the control plane says of the destination";
    PodGone = "pod_gone", Heddle, 503, Never, "the pod is not enrolled any more";
    Descriptors = "descriptors_exhausted", Heddle, 503, Never, "the process has no descriptor left for a connection";
    Memory = "buffers_exhausted", Heddle, 503, Never, "all buffers are in use";
    Draining = "draining", Heddle, 503, Never, "the proxy is shutting down";
}

impl Reason {
    /// Index in [`Reason::CODES`], for example for metrics.
    pub fn index(self) -> usize {
        self as usize
    }

    /// The stable name in metrics, the access log and responses.
    pub fn code(self) -> &'static str {
        Self::CODES[self.index()]
    }

    pub(crate) fn from_code(code: &[u8]) -> Option<Self> {
        let mut each = Self::EACH.iter();
        each.find(|reason| reason.code().as_bytes() == code)
            .copied()
    }

    /// Whether the failure means that nothing has reached an endpoint, so that a retry is safe for any protocol.
    pub(crate) fn is_safe_to_retry(self) -> bool {
        self.row().2 == Retry::Safe
    }

    /// Whether it is a connect timeout.
    pub(crate) fn is_connect_timeout(self) -> bool {
        matches!(self, Reason::ConnectTimeout | Reason::NodeConnectTimeout)
    }

    /// Converts the reason of a failure without a response, if the connection went to another node. That node sends a
    /// response if the endpoint fails, so a missing response means that the node itself or the path to it has failed.
    pub(crate) fn without_answer(self, is_to_node: bool) -> Self {
        match self {
            Reason::UpstreamReset if is_to_node => Reason::NodeReset,
            Reason::UpstreamTruncated if is_to_node => Reason::LinkLost,
            other => other,
        }
    }

    fn row(self) -> (Blame, u16, Retry, &'static str) {
        Self::ALL[self.index()]
    }
}

/// A failed request, with the codec's details if the codec refused it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failure {
    pub reason: Reason,
    /// The codec's details, if the codec refused the message.
    pub reject: Option<Reject>,
}

impl From<Reason> for Failure {
    fn from(reason: Reason) -> Self {
        Failure {
            reason,
            reject: None,
        }
    }
}

impl Failure {
    /// The failure of a request that the codec refused.
    pub fn request(reject: Reject) -> Self {
        Failure {
            reason: Reason::Malformed,
            reject: Some(reject),
        }
    }

    /// The failure of a response that the codec refused.
    pub fn response(reject: Reject) -> Self {
        Failure {
            reason: Reason::UpstreamMalformed,
            reject: Some(reject),
        }
    }

    /// The party that is to blame, by the reason.
    pub fn blame(&self) -> Blame {
        self.reason.row().0
    }

    /// Whether the request may be retried, by the reason.
    pub fn retry(&self) -> Retry {
        self.reason.row().2
    }

    /// The HTTP status for the client; 0 if it gets no response.
    pub fn status(&self) -> u16 {
        match (self.reason, self.reject) {
            (Reason::Malformed, Some(reject)) => reject.status,
            _ => self.reason.row().1,
        }
    }

    /// The most precise code: the codec's, otherwise the reason's.
    pub fn code(&self) -> &'static str {
        self.reject.map_or(self.reason.code(), |reject| reject.code)
    }

    /// One sentence that explains the failure to a person.
    pub fn detail(&self) -> &'static str {
        self.reject
            .map_or(self.reason.row().3, |reject| reject.detail)
    }
}

/// Reasons as one of a few [`Status`] values, for opaque connections between nodes.
impl Reason {
    /// The status that is sent to another node.
    pub(crate) fn status(self) -> Status {
        match self {
            Reason::PolicyDenied | Reason::PolicyRevoked => Status::Denied,
            Reason::EndpointGone | Reason::ServiceGone | Reason::NoEndpoint => Status::NoEndpoint,
            Reason::ConnectFailed
            | Reason::ConnectTimeout
            | Reason::NodeConnectFailed
            | Reason::NodeConnectTimeout => Status::ConnectFailed,
            _ => Status::Busy,
        }
    }

    /// The reason for a status from another node; `None` if it has connected the endpoint.
    pub(crate) fn of_status(status: Status) -> Option<Self> {
        Some(match status {
            Status::Joined => return None,
            Status::Denied => Reason::PolicyDenied,
            Status::NoEndpoint => Reason::EndpointGone,
            Status::ConnectFailed => Reason::ConnectFailed,
            Status::Busy => Reason::UpstreamOverflow,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_found_by_its_name() {
        for (index, code) in Reason::CODES.iter().enumerate() {
            let found = Reason::from_code(code.as_bytes());
            assert_eq!(found.map(Reason::index), Some(index), "{code}");
        }
        assert_eq!(Reason::from_code(b"no-such-reason"), None);
    }

    #[test]
    fn a_node_that_cannot_be_reached_is_not_an_endpoint_that_cannot() {
        for (of_node, of_endpoint) in [
            (Reason::NodeConnectFailed, Reason::ConnectFailed),
            (Reason::NodeConnectTimeout, Reason::ConnectTimeout),
        ] {
            let [node, endpoint] = [of_node, of_endpoint].map(Failure::from);
            assert_eq!(
                (node.blame(), endpoint.blame()),
                (Blame::Node, Blame::Upstream)
            );
            assert_eq!(
                (node.status(), node.retry()),
                (endpoint.status(), endpoint.retry())
            );
            // Other nodes get the same status for both, which older versions know.
            assert_eq!(of_node.status(), of_endpoint.status());
            let is_late = of_endpoint.is_connect_timeout();
            assert_eq!(of_node.is_connect_timeout(), is_late);
        }
    }

    #[test]
    fn what_another_node_says_of_itself_is_that_nodes_fault() {
        for (reason, here, said_there) in [
            (Reason::UpstreamReset, "upstream", "upstream"),
            (Reason::Memory, "heddle", "node"),
            (Reason::LinkLost, "node", "node"),
            (Reason::PolicyDenied, "downstream", "downstream"),
        ] {
            let blame = Failure::from(reason).blame();
            assert_eq!(blame.as_str(), here);
            assert_eq!(blame.of_another_node().as_str(), said_there);
        }
    }

    #[test]
    fn what_ends_without_an_answer_on_another_node_is_not_the_endpoints_fault() {
        for reason in [Reason::UpstreamReset, Reason::UpstreamTruncated] {
            assert_eq!(reason.without_answer(false), reason);
            let of_node = Failure::from(reason.without_answer(true));
            assert_eq!(of_node.blame(), Blame::Node);
            assert_eq!((of_node.status(), of_node.retry()), {
                let own = Failure::from(reason);
                (own.status(), own.retry())
            });
        }
    }
}
