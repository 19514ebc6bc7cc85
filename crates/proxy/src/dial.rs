//! Dials other nodes: a TCP connection, then mutual TLS over it. The handshake is also the one with Envoys.

use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::task::Poll;

use heddle_model::{Class, ServiceAccountName};
use heddle_transport::{NoIdentity, Protocol};
use rustix::io::Errno;
use tokio::net::{TcpSocket, TcpStream};

use crate::env::{Alarm, Env};
use crate::failure::Reason;
use crate::handshake::{Handshake, HandshakeError};
use crate::io::{WireSide, set_effort};
use crate::peers::Trouble;

/// Parameters of a handshake with another node.
pub(crate) struct Shaking<'a> {
    pub(crate) env: &'a Env,
    pub(crate) alarm: &'a Alarm,
    /// The calling workload's account, whose certificate is shown.
    pub(crate) caller: Option<&'a ServiceAccountName>,
    /// The service account that the other node must prove to host.
    pub(crate) called: &'a ServiceAccountName,
    pub(crate) node: SocketAddr,
}

/// Why the handshake failed.
pub(crate) enum Unmet {
    Late,
    NoIdentity(NoIdentity),
    Broken(HandshakeError),
}

impl Shaking<'_> {
    /// Makes the handshake over a connected socket, until the alarm rings.
    pub(crate) async fn hands(
        &self,
        stream: TcpStream,
        protocol: Protocol,
    ) -> Result<WireSide, Unmet> {
        let Shaking { env, alarm, .. } = *self;
        let missing = Unmet::NoIdentity(NoIdentity::Missing);
        let identities = env.identities().ok_or(missing)?;
        let session = match (self.caller, protocol.is_stock()) {
            (Some(caller), true) => identities.connect_stock(caller, self.called, protocol),
            // An Envoy accepts no identity that stands for no workload.
            (None, true) => Err(NoIdentity::Missing),
            (caller, false) => identities.connect(caller, self.called, protocol),
        };
        let session = session.map_err(Unmet::NoIdentity)?;
        let mut handshake = Handshake::connect(stream, session, self.caller.cloned());
        env.stats.handshakes.inc();
        let shaken = poll_fn(|cx| match alarm.rang() {
            true => Poll::Ready(None),
            false => handshake.poll(cx, &env.pace).map(Some),
        });
        let shaken = shaken.await.ok_or(Unmet::Late)?;
        let side = shaken.and_then(|()| {
            let side = handshake.finish(env.clock.now(), &env.pool, &identities)?;
            // Checked against the current trust and revocations, which may have changed since the handshake began.
            env.check(&side).map_err(HandshakeError::Refused)?;
            Ok(side)
        });
        side.map_err(Unmet::Broken)
    }
}

/// Dials another node for a connection that many requests share.
///
/// # Errors
/// Why the node cannot be reached; [`Reason::LinkLost`] if the connection was cut during the handshake.
pub(crate) async fn dial_node(
    shaking: Shaking<'_>,
    protocol: Protocol,
) -> Result<WireSide, Reason> {
    let Shaking {
        env,
        alarm,
        caller,
        node,
        ..
    } = shaking;
    let mut connecting = pin!(open_from_here(node, env.stats.class()));
    let connected = poll_fn(|cx| match alarm.rang() {
        true => Poll::Ready(None),
        false => connecting.as_mut().poll(cx).map(Some),
    });
    let stream = match connected.await {
        Some(Ok(stream)) => stream,
        Some(Err(error)) if is_ours(&error) => return Err(Reason::Descriptors),
        Some(Err(error)) => {
            say_unreachable(env, node, &error);
            return Err(Reason::NodeConnectFailed);
        }
        None => return Err(late(env, alarm, node)),
    };
    match shaking.hands(stream, protocol).await {
        Ok(side) => Ok(side),
        Err(Unmet::Late) => Err(late(env, alarm, node)),
        Err(Unmet::NoIdentity(error)) => {
            let caller = caller.map_or_else(|| "unidentified".to_owned(), ToString::to_string);
            Err(missing(env, &caller, &error))
        }
        Err(Unmet::Broken(broken)) => {
            say_left(env, node, &broken);
            Err(match say_refused(env, &node, &broken) {
                // The node was reachable, and may be so again.
                Reason::NodeConnectFailed => Reason::LinkLost,
                reason => reason,
            })
        }
    }
}

/// The reason of a timeout: the node did not answer in time, unless the alarm rang for something else.
fn late(env: &Env, alarm: &Alarm, node: SocketAddr) -> Reason {
    let reason = env.rang_for(alarm, Reason::NodeConnectTimeout);
    if reason == Reason::NodeConnectTimeout {
        say_unreachable(env, node, &NOT_IN_TIME);
    }
    reason
}

/// Logged for a node that does not answer.
pub(crate) const NOT_IN_TIME: &str = "it did not answer in time (proxy.timeouts.connect_ms)";

/// Logs that another node cannot be reached, and why.
pub(crate) fn say_unreachable(env: &Env, node: SocketAddr, error: &dyn fmt::Display) {
    if env
        .peers
        .may_name(node, Trouble::Unreachable, env.clock.now())
    {
        tracing::warn!(
            %node, %error,
            "another node cannot be reached: is it running, and the way to it open?"
        );
    }
}

/// Logs that another node closed the connection during a handshake, if that is what happened.
pub(crate) fn say_left(env: &Env, node: SocketAddr, broken: &HandshakeError) {
    if let HandshakeError::Io(error) = broken
        && env.peers.may_name(node, Trouble::Left, env.clock.now())
    {
        tracing::warn!(
            %node, %error,
            "another node left in the middle of a handshake: was it stopped, or is the way to it cut?"
        );
    }
}

/// Logs that a caller has no identity.
pub(crate) fn missing(env: &Env, caller: &str, error: &NoIdentity) -> Reason {
    let now = env.clock.now();
    let number = NoIdentity::clone(error);
    if env.no_identity.borrow_mut().may_name(number, now) {
        tracing::warn!(caller, "another node cannot be called: {error}");
    }
    Reason::IdentityMissing
}

/// Counts and logs why another node is not used.
pub(crate) fn say_refused(env: &Env, peer: &dyn fmt::Display, broken: &HandshakeError) -> Reason {
    match broken {
        HandshakeError::Refused(refusal) => {
            env.stats.handshakes_refused.inc(refusal.index());
            let now = env.clock.now();
            if env.refused.borrow_mut().may_name(refusal.index(), now) {
                let reason = refusal.code();
                tracing::warn!(endpoint = %peer, reason, "the handshake with another node was refused: {refusal}");
            }
            Reason::PeerRefused
        }
        HandshakeError::Memory => Reason::Memory,
        HandshakeError::Io(error) => {
            env.stats.handshakes_failed.inc();
            tracing::debug!(endpoint = %peer, %error, "a handshake was cut");
            Reason::NodeConnectFailed
        }
    }
}

/// Connects with Nagle's algorithm off.
///
/// # Errors
/// The kernel's error.
pub(crate) async fn open_from_here(address: SocketAddr, class: Class) -> io::Result<TcpStream> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()?
    } else {
        TcpSocket::new_v6()?
    };
    socket.set_nodelay(true)?;
    set_effort(&socket, class);
    socket.connect(address).await
}

/// Whether connecting failed because no file descriptor is left, which says nothing about the endpoint.
pub(crate) fn is_ours(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(errno, Some(Errno::MFILE | Errno::NFILE))
}
