//! Which Worker carries a connection that the Manager has accepted.

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Instant;

use super::Crew;
use crate::door::Door;
use crate::intake::{Intake, Placed};
use crate::listener::{BATCH, Refusing};
use crate::parcel::{Arrival, Parcel};

impl Crew {
    /// Whether some Worker has room for a whole batch of accepted connections.
    pub(in super::super) fn has_room(&self) -> bool {
        let mut active = self.active.iter();
        active.any(|member| member.handle.intake.room() >= BATCH)
    }

    /// Places an accepted connection with a Worker, or refuses it. Returns the Worker to wake.
    pub(in super::super) fn accepted(
        &mut self,
        door: &Arc<Door>,
        client: TcpStream,
        peer: SocketAddr,
    ) -> Option<Intake> {
        match door.permit(peer) {
            Ok(permit) => {
                let parcel = Parcel::new(door, client, peer, permit);
                match self.common.offline_workers.place(parcel) {
                    Placed::NotHere(parcel) => self.place(parcel),
                    Placed::In(intake) => Some(intake),
                    Placed::Closed => {
                        self.common.stats.connections_refused.inc();
                        None
                    }
                }
            }
            Err(spent) => {
                let refusing = Refusing {
                    refused: &self.common.stats.connections_refused,
                    over_share: &self.common.stats.connections_over_share,
                    full: &mut self.full,
                    most: self.common.settings.bounds.connections,
                    now: Instant::now(),
                };
                refusing.turn_away(door, (&client, peer), spent);
                None
            }
        }
    }

    /// Gives a connection to the Worker that is expected to be least loaded, or to the next one if that has no room. If
    /// none has room, although `has_room` was checked before, the connection is closed. Returns the Worker to wake.
    fn place(&mut self, parcel: Parcel) -> Option<Intake> {
        let mut full: Vec<usize> = Vec::new();
        let mut arrival = Arrival::Client(parcel);
        loop {
            let Some(index) = self.loads.place(|index| full.contains(&index)) else {
                self.common.stats.connections_refused.inc();
                self.common.stats.connections_unplaced.inc();
                return None;
            };
            let intake = &self.active[index].handle.intake;
            match intake.put(arrival) {
                Ok(()) => return Some(intake.clone()),
                Err(back) => {
                    arrival = back;
                    full.push(index);
                }
            }
        }
    }
}
