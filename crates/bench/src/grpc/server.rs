//! `heddle-lab grpc-upstream`: answers each call with the message that came, on one thread.
//!
//! A call that is incomplete or wrong gets a gRPC status that the load generator counts as a failure.

use std::net::{SocketAddr, SocketAddrV4};

use bytes::Bytes;
use h2::RecvStream;
use h2::server::SendResponse;
use http::Request;
use tokio::net::{TcpListener, TcpStream};

use super::{call, called};
use crate::listen::listen;
use crate::upstream;

/// Serves until the process is stopped. Prints the port on a line of its own once it listens.
///
/// # Errors
/// When it cannot listen.
pub fn run() -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let address = SocketAddr::from(SocketAddrV4::new(upstream::address(0), 0));
        let listener = TcpListener::from_std(listen(address)?)?;
        println!("{}", listener.local_addr()?.port());
        serve(listener).await
    })
}

/// Serves all clients that connect.
///
/// # Errors
/// When no connection can be accepted any more.
pub(super) async fn serve(listener: TcpListener) -> anyhow::Result<()> {
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        tokio::spawn(async move {
            if let Err(error) = connection(stream).await {
                eprintln!("a connection broke: {error}");
            }
        });
    }
}

async fn connection(stream: TcpStream) -> Result<(), h2::Error> {
    let mut connection = called().handshake(stream).await?;
    while let Some(call) = connection.accept().await {
        let (call, respond) = call?;
        tokio::spawn(async move {
            // Fails when the caller has reset the call, or the connection has ended, which the connection's task
            // reports.
            let _ended = answer(call, respond).await;
        });
    }
    Ok(())
}

async fn answer(
    call: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
) -> Result<(), h2::Error> {
    let mut whole = call::is_call(&call);
    let mut body = call.into_body();
    let mut message = Bytes::new();
    while let Some(part) = body.data().await {
        let part = part?;
        body.flow_control().release_capacity(part.len())?;
        match message.is_empty() {
            true => message = part,
            false if part.is_empty() => {}
            false => message = [message, part].concat().into(),
        }
        whole &= message.len() as u64 <= 5 + call::MAX_MESSAGE;
        if !whole {
            break;
        }
    }
    let mut stream = respond.send_response(call::answer(), false)?;
    let status = if whole { "0" } else { "3" };
    stream.send_data(message, false)?;
    stream.send_trailers(call::trailers(status))
}
