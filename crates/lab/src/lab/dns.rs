//! The DNS of a node, as a cluster has one: names of Services, and nothing else.
//!
//! [`zone`] holds the names, [`answer`] turns a query into a response; the sockets are here. A malformed message gets
//! an error or no response. The cost is bounded: datagrams are answered one after the other, the number of
//! connections is limited, and each read or write has a timeout.

mod answer;
mod zone;

use std::cell::RefCell;
use std::io;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::Semaphore;
use tokio::task::LocalSet;
use tokio::time::timeout;

use super::file::LabName;
use super::folder::{Folder, PlanStamp};
use answer::Over;
use zone::Zone;

/// Printed to the log once it listens; [`super::node`] waits for it.
pub(super) const READY: &str = "answering";

const PORT: u16 = 53;
/// Receive buffer; queries are far smaller.
const MAX_DATAGRAM: usize = 4096;
/// Limit of open TCP connections.
const MAX_CONNECTIONS: usize = 128;
/// Idle timeout of a connection, and timeout of writing a response.
const IDLE_LIMIT: Duration = Duration::from_secs(5);
/// Wait after a failed accept: the process is out of descriptors or memory.
const RETRY: Duration = Duration::from_millis(100);

/// Options of `heddle-lab dns`.
#[derive(Args)]
pub struct DnsOptions {
    /// The lab whose names it serves.
    #[arg(long)]
    lab: LabName,
    /// Address to listen on, UDP and TCP port 53.
    #[arg(long = "address", required = true)]
    addresses: Vec<IpAddr>,
}

/// Serves until the process is ended.
///
/// # Errors
/// The lab does not exist, or an address cannot be listened on.
pub(super) fn serve(options: &DnsOptions) -> anyhow::Result<()> {
    let names = Rc::new(Names::of(Folder::of(&options.lab))?);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()?;
    LocalSet::new().block_on(&runtime, async {
        for address in &options.addresses {
            let shown = || format!("cannot listen on port {PORT} of {address}");
            let datagrams = UdpSocket::bind((*address, PORT))
                .await
                .with_context(shown)?;
            let listener = TcpListener::bind((*address, PORT))
                .await
                .with_context(shown)?;
            tokio::task::spawn_local(serve_datagrams(datagrams, Rc::clone(&names)));
            tokio::task::spawn_local(serve_connections(listener, Rc::clone(&names)));
        }
        println!("{READY} for {} names", names.zone().len());
        std::future::pending().await
    })
}

/// The lab's current names.
struct Names {
    folder: Folder,
    /// The last plan that was read, and its names.
    read: RefCell<(Option<PlanStamp>, Rc<Zone>)>,
}

impl Names {
    fn of(folder: Folder) -> anyhow::Result<Self> {
        let stamp = folder.plan_stamp();
        let zone = Rc::new(Zone::of(&folder.plan()?)?);
        let read = RefCell::new((stamp, zone));
        Ok(Self { folder, read })
    }

    /// Reads the plan again if it was replaced. If it cannot be read, the old names stay.
    fn zone(&self) -> Rc<Zone> {
        let stamp = self.folder.plan_stamp();
        let mut read = self.read.borrow_mut();
        if stamp.is_some() && stamp != read.0 {
            read.0 = stamp;
            match self.folder.plan().and_then(|plan| Zone::of(&plan)) {
                Ok(zone) => read.1 = Rc::new(zone),
                Err(error) => println!("the plan is invalid, so the old names stay: {error:#}"),
            }
        }
        Rc::clone(&read.1)
    }
}

async fn serve_datagrams(socket: UdpSocket, names: Rc<Names>) {
    let mut question = vec![0; MAX_DATAGRAM];
    loop {
        // The error belongs to a response sent earlier, for instance to a pod that is gone.
        let Ok((length, from)) = socket.recv_from(&mut question).await else {
            continue;
        };
        if let Some(answer) = answer::to(&question[..length], Over::Datagrams, &names.zone()) {
            let _lost_like_any_datagram = socket.send_to(&answer, from).await;
        }
    }
}

async fn serve_connections(listener: TcpListener, names: Rc<Names>) {
    let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok(permit) = Arc::clone(&room).acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok((stream, _)) => {
                let names = Rc::clone(&names);
                tokio::task::spawn_local(async move {
                    let _hung_up_or_silent = converse(stream, &names).await;
                    drop(permit);
                });
            }
            Err(_) => tokio::time::sleep(RETRY).await,
        }
    }
}

/// Answers the queries of one connection, each with a length prefix (RFC 1035 section 4.2.2).
async fn converse(mut stream: TcpStream, names: &Names) -> io::Result<()> {
    loop {
        let length = timeout(IDLE_LIMIT, stream.read_u16()).await??;
        let mut question = vec![0; usize::from(length)];
        timeout(IDLE_LIMIT, stream.read_exact(&mut question)).await??;
        let Some(answer) = answer::to(&question, Over::Connection, &names.zone()) else {
            return Ok(());
        };
        let length = u16::try_from(answer.len()).map_err(io::Error::other)?;
        let framed = [&length.to_be_bytes()[..], &answer].concat();
        timeout(IDLE_LIMIT, stream.write_all(&framed)).await??;
    }
}
