//! The Workers for offline callers, as other Workers see them.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::Intake;
use crate::entry::Entry;
use crate::io::is_lower_effort;
use crate::listener::BATCH;
use crate::parcel::{Arrival, Parcel};

/// The intakes of the Workers for offline callers, and a way to ask for such a Worker. Used when another node connects or
/// begins a link, never for a stream.
#[derive(Debug, Clone, Default)]
pub(crate) struct OfflineWorkers {
    intakes: Arc<Mutex<Vec<Intake>>>,
    /// Whether there is any.
    any: Arc<AtomicBool>,
    wanted: Arc<Notify>,
}

/// What became of an accepted connection.
pub(crate) enum Placed {
    /// It is not of an offline caller, or there is no Worker for such callers: the Workers of the listener serve it.
    NotHere(Parcel),
    /// It waits here; the intake has to be woken.
    In(Intake),
    /// It is closed: no Worker for offline callers has room. They get no processor, or are flooded.
    Closed,
}

impl OfflineWorkers {
    /// The Workers from now on.
    pub(crate) fn set(&self, intakes: Vec<Intake>) {
        self.any.store(!intakes.is_empty(), Relaxed);
        *self.lock() = intakes;
    }

    /// Gives a connection that another node has opened for an offline caller to one of them. Its SYN says so, before the
    /// handshake, which may take a millisecond; no Worker is started for a stranger.
    pub(crate) fn place(&self, parcel: Parcel) -> Placed {
        let contents = &parcel.contents;
        let is_theirs = self.any.load(Relaxed)
            && matches!(contents.door.entry, Entry::Mesh)
            && is_lower_effort(contents.client.socket());
        if !is_theirs {
            return Placed::NotHere(parcel);
        }
        let intakes = self.lock();
        let Some((_, most)) = roomiest(&intakes) else {
            return Placed::NotHere(parcel);
        };
        // Moved connections find as many places kept.
        match most.put_beside(Arrival::Client(parcel), BATCH) {
            Ok(()) => Placed::In(most.clone()),
            Err(_) => Placed::Closed,
        }
    }

    /// One of them that has room for a moved connection: that with the most. A Worker that gets no processor has none.
    pub(crate) fn choose(&self) -> Option<Intake> {
        let intakes = self.lock();
        let (room, most) = roomiest(&intakes)?;
        // As many places are kept for new connections.
        (room > BATCH).then(|| most.clone())
    }

    /// Asks the Manager for a Worker.
    pub(crate) fn want(&self) {
        self.wanted.notify_one();
    }

    /// Resolves when a Worker is wanted.
    pub(crate) async fn wanted(&self) {
        self.wanted.notified().await;
    }

    /// Ignores a poisoned lock: every change is a single assignment.
    fn lock(&self) -> MutexGuard<'_, Vec<Intake>> {
        self.intakes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The intake with the most room, of those whose Workers do not retire.
fn roomiest(intakes: &[Intake]) -> Option<(usize, &Intake)> {
    let at_work = intakes.iter().filter(|intake| intake.is_open());
    let rooms = at_work.map(|intake| (intake.room(), intake));
    rooms.max_by_key(|(room, _)| *room)
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use std::net::TcpListener;

    use heddle_model::Class;
    use rustix::net::{AddressFamily, SocketType, socket};

    use super::*;
    use crate::door::Door;
    use crate::io::{set_effort, tell_effort};
    use crate::permits::Permits;

    #[test]
    fn a_worker_without_room_is_not_chosen() {
        let workers = OfflineWorkers::default();
        assert!(workers.choose().is_none());
        let (full, roomy) = (Intake::new(BATCH), Intake::new(BATCH + 1));
        workers.set(vec![full.clone()]);
        // It would be handed back, and chosen again at once.
        assert!(workers.choose().is_none());
        workers.set(vec![full, roomy]);
        assert_eq!(
            workers.choose().map(|intake| intake.room()),
            Some(BATCH + 1)
        );
    }

    /// A connection that was opened for a caller of this class, as a listener for other nodes accepts it.
    fn accepted(class: Class) -> std::io::Result<Parcel> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        tell_effort(&listener);
        let client = socket(AddressFamily::INET, SocketType::STREAM, None)?;
        set_effort(&client, class);
        rustix::net::connect(&client, &listener.local_addr()?)?;
        let (stream, peer) = listener.accept()?;
        let door = Door::new(Entry::Mesh, 1, None, &Permits::new(8, None, None));
        let permit = door.permit(peer).expect("one of eight");
        Ok(Parcel::new(&door, stream, peer, permit))
    }

    #[test]
    fn a_connection_for_an_offline_caller_waits_for_a_worker_for_it_or_is_closed() {
        let workers = OfflineWorkers::default();
        let place = |class| workers.place(accepted(class).expect("a connection"));
        let is_left = |class| matches!(place(class), Placed::NotHere(_));
        assert!(is_left(Class::Offline), "no Worker is there");
        let intake = Intake::new(BATCH + 1);
        workers.set(vec![intake.clone()]);
        assert!(is_left(Class::Online));
        assert!(matches!(place(Class::Offline), Placed::In(_)));
        assert!(matches!(place(Class::Offline), Placed::Closed));
        assert!(is_left(Class::Online), "whatever room the others have");
        // One that retires is none.
        intake.close();
        assert!(is_left(Class::Offline));
    }
}
