//! The two ways in which Envoys ask: incremental xDS, and state-of-the-world.

use bytes::Bytes;
use heddle_envoy::Kind;
use heddle_envoy::wire::{self, DeltaRequest, DeltaResponse, Node};
use heddle_envoy::world::{WORLD, World, WorldRequest, WorldResponse};
use heddle_xds::delta::{Request, Response};
use tonic::{Status, Streaming, body};

use crate::frames;

/// Limit on a message of an Envoy, in bytes: one that connects again names all that it has.
const MAX_REQUEST_BYTES: usize = 4 << 20;
/// Limit on a message to an Envoy, in bytes.
const MAX_RESPONSE_BYTES: usize = 64 << 20;

/// The messages of one Envoy.
pub(super) enum Dialect {
    Delta(Streaming<DeltaRequest>),
    World(Streaming<WorldRequest>, Box<World>),
}

/// A message of an Envoy.
pub(super) struct Asked {
    /// The id of its node, which the first message has.
    pub(super) node: String,
    /// The type that it is about; `None` for one that is not known: a newer Envoy may ask for more than there is.
    pub(super) about: Option<(Kind, Request)>,
}

/// What an Envoy is sent.
pub(super) struct Told {
    pub(super) frame: Bytes,
    /// Resources in it, and names of resources that are gone.
    pub(super) names: usize,
}

impl Dialect {
    /// Of a call of the method at this path.
    pub(super) fn of(path: &str, body: body::Body) -> Self {
        match path {
            WORLD => Self::World(
                frames::requests::<WorldResponse, WorldRequest>(body, MAX_REQUEST_BYTES),
                Box::default(),
            ),
            _ => Self::Delta(frames::requests::<DeltaResponse, DeltaRequest>(
                body,
                MAX_REQUEST_BYTES,
            )),
        }
    }

    /// Whether the Envoy gets whole lists of what there is.
    pub(super) fn has_whole_lists(&self) -> bool {
        matches!(self, Self::World(..))
    }

    /// The next message; `None` when the Envoy has ended the call. Nothing is lost when it is dropped before it completes.
    ///
    /// # Errors
    /// When the message cannot be read, or the connection broke.
    pub(super) async fn next(&mut self) -> Result<Option<Asked>, Status> {
        match self {
            Self::Delta(messages) => Ok(messages.message().await?.map(|mut message| Asked {
                node: node(message.node.take()),
                about: Kind::from_url(&message.type_url).map(|kind| (kind, wire::request(message))),
            })),
            Self::World(messages, world) => {
                Ok(messages.message().await?.map(|mut message| Asked {
                    node: node(message.node.take()),
                    about: Kind::from_url(&message.type_url)
                        .map(|kind| (kind, world.request(kind, message))),
                }))
            }
        }
    }

    /// A response, as it is sent.
    ///
    /// # Errors
    /// When it is larger than Envoys accept.
    pub(super) fn told(&mut self, kind: Kind, response: Response<Bytes>) -> Result<Told, Status> {
        let names = response.resources.len() + response.removed.len();
        let frame = match self {
            Self::Delta(_) => {
                frames::frame(&DeltaResponse::new(kind, response), MAX_RESPONSE_BYTES)
            }
            Self::World(_, world) => {
                frames::frame(&world.response(kind, response), MAX_RESPONSE_BYTES)
            }
        };
        Ok(Told {
            frame: frame?,
            names,
        })
    }
}

fn node(node: Option<Node>) -> String {
    node.unwrap_or_default().id
}
