//! Keeps a provider registered: carries out the decisions of [`Life`] with a network and a clock.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use etcd_client::{Client, Compare, CompareOp, PutOptions, Txn, TxnOp};
use heddle_compile::registered::{Layout, sockets};
use tokio::time::{sleep, timeout};

use super::access::Trouble;
use super::life::{Life, Written};
use super::pause::Pause;
use super::{Access, AccessError, MAX_TTL, MIN_TTL, News, Provider};

#[cfg(test)]
mod tests;

/// Lower and upper bound of an answer's timeout.
const ANSWER_WAIT: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(5));
/// Timeout of revoking at each endpoint.
const REVOKE_WAIT: Duration = Duration::from_secs(2);
/// The longest time between two keepalives of the lease: entries that a store has lost stay for
/// [`GRACE`](super::core::GRACE).
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// How often a registration that waits checks whether another provider's key is gone.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A provider, and where to register it.
#[derive(Debug, Clone)]
pub struct Registration {
    access: Access,
    key: String,
    provider: Provider,
    ttl: Duration,
}

/// How a registration ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kept {
    /// The provider is not registered any more.
    Revoked,
    /// No endpoint answered the revocation: the provider stays registered until its lease ends.
    NotRevoked(String),
    /// The provider was never registered, and cannot be until the operator changes something.
    Refused(String),
}

impl Registration {
    /// A registration that has not begun; [`Registration::keep`] begins it.
    ///
    /// # Errors
    /// As [`Access::check`].
    ///
    /// # Panics
    /// When the time to live is not between [`MIN_TTL`] and [`MAX_TTL`].
    pub fn new(
        access: Access,
        layout: &Layout,
        provider: Provider,
        ttl: Duration,
    ) -> Result<Self, AccessError> {
        assert!(
            (MIN_TTL..=MAX_TTL).contains(&ttl),
            "a time to live in range"
        );
        access.check()?;
        Ok(Registration {
            key: layout.key(&provider.key),
            access,
            provider,
            ttl,
        })
    }

    /// The etcd key that is registered.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Keeps the provider registered until `stop` completes, then revokes the lease at once. `news` gets every change
    /// for the operator. Needs a tokio runtime with I/O and time.
    pub async fn keep(&self, stop: impl Future<Output = ()>, mut news: impl FnMut(News)) -> Kept {
        let mut stop = pin!(stop);
        let mut lease = None;
        let mut attempt = 0;
        let refused = tokio::select! {
            () = &mut stop => None,
            why = self.keep_for_ever(&mut lease, &mut attempt, &mut news) => Some(why),
        };
        match (lease, refused) {
            (_, Some(why)) => Kept::Refused(why),
            (None, None) => Kept::Revoked,
            (Some(lease), None) => match self.revoke(lease, attempt).await {
                Ok(()) => Kept::Revoked,
                Err(trouble) => Kept::NotRevoked(trouble.to_string()),
            },
        }
    }

    /// Returns only if registering is impossible, with the reason.
    async fn keep_for_ever(
        &self,
        lease: &mut Option<i64>,
        attempt: &mut usize,
        news: &mut impl FnMut(News),
    ) -> String {
        let mut life = Life::new();
        let mut pause = Pause::new();
        loop {
            let mut session = Session {
                registration: self,
                lease: &mut *lease,
                life: &mut life,
                pause: &mut pause,
                news: &mut *news,
            };
            let trouble = match self.access.connect(*attempt).await {
                Ok(client) => session.run(client).await,
                Err(trouble) => trouble,
            };
            match life.failed(&trouble) {
                Ok(Some(said)) => news(said),
                Ok(None) => {}
                Err(why) => return why,
            }
            *attempt += 1;
            // An etcd that comes back gives each lease its full time to live again, so a provider that retries at least
            // this often keeps its lease.
            sleep(pause.failed().min(self.every())).await;
        }
    }

    /// Revokes the lease at the first endpoint that answers.
    async fn revoke(&self, lease: i64, attempt: usize) -> Result<(), Trouble> {
        let mut trouble = Trouble::late();
        for attempt in attempt..attempt + self.access.len() {
            let revoking = async {
                let mut client = self.access.connect(attempt).await?;
                client.lease_revoke(lease).await?;
                Ok(())
            };
            trouble = match timeout(REVOKE_WAIT, revoking).await {
                Ok(Ok(()) | Err(Trouble::NoLease)) => return Ok(()),
                Ok(Err(trouble)) => trouble,
                Err(_) => Trouble::late(),
            };
        }
        Err(trouble)
    }

    /// The interval of the lease's keepalives.
    fn every(&self) -> Duration {
        (self.ttl / 3).min(LONGEST_PAUSE)
    }

    async fn within<T>(
        &self,
        call: impl Future<Output = Result<T, etcd_client::Error>>,
    ) -> Result<T, Trouble> {
        let wait = self.every().clamp(ANSWER_WAIT.0, ANSWER_WAIT.1);
        let answer = timeout(wait, call).await;
        Ok(answer.map_err(|_| Trouble::late())??)
    }
}

/// The part of a registration that uses one connection.
struct Session<'s, N> {
    registration: &'s Registration,
    /// The lease to revoke at the end. It outlives connections.
    lease: &'s mut Option<i64>,
    life: &'s mut Life,
    pause: &'s mut Pause,
    news: &'s mut N,
}

enum KeyHolder {
    Us(Written),
    Another,
}

impl<N: FnMut(News)> Session<'_, N> {
    /// Keeps the provider registered until the connection fails.
    async fn run(&mut self, mut client: Client) -> Trouble {
        loop {
            let trouble = match self.keep(&mut client).await {
                Ok(never) => match never {},
                Err(trouble) => trouble,
            };
            match trouble {
                Trouble::NoLease => {
                    *self.lease = None;
                    self.life.lease_ended();
                    // Without a wait, an etcd that ends every lease at once would be called in a tight loop.
                    let longest = self.registration.every();
                    sleep(self.pause.failed().min(longest)).await;
                }
                trouble => return trouble,
            }
        }
    }

    /// Keeps one lease and its key alive.
    async fn keep(&mut self, client: &mut Client) -> Result<std::convert::Infallible, Trouble> {
        let registration = self.registration;
        let lease = match *self.lease {
            Some(lease) => lease,
            None => {
                let ttl = i64::try_from(registration.ttl.as_secs()).unwrap_or(i64::MAX);
                let granted = registration
                    .within(client.lease_grant(ttl, None))
                    .await?
                    .id();
                *self.lease.insert(granted)
            }
        };
        let keeping = client.lease_keep_alive(lease);
        let (mut keeper, mut answers) = registration.within(keeping).await?;
        loop {
            let wait = match self.put(client, lease).await? {
                KeyHolder::Us(written) => {
                    self.pause.succeeded();
                    let said = self.life.registered(written);
                    said.into_iter().for_each(&mut *self.news);
                    registration.every()
                }
                KeyHolder::Another => {
                    let said = self.life.taken();
                    said.into_iter().for_each(&mut *self.news);
                    registration.every().min(LOOK_EVERY)
                }
            };
            sleep(wait).await;
            registration.within(keeper.keep_alive()).await?;
            let answer = registration.within(answers.message()).await?;
            let ended = || Trouble::Away("etcd has ended the keepalives of the lease".to_owned());
            if answer.ok_or_else(ended)?.ttl() <= 0 {
                return Err(Trouble::NoLease);
            }
        }
    }

    /// Makes sure that the key is in etcd with this lease.
    async fn put(&self, client: &mut Client, lease: i64) -> Result<KeyHolder, Trouble> {
        let registration = self.registration;
        let key = registration.key.as_str();
        let answer = registration.within(client.get(key, None)).await?;
        let (unchanged, written) = match answer.kvs().first() {
            None => (Compare::version(key, CompareOp::Equal, 0), Written::Anew),
            Some(found) if found.lease() == lease => return Ok(KeyHolder::Us(Written::Kept)),
            Some(found) if self.life.may_take_over() && self.is_same_place(found.value()) => {
                let at = found.mod_revision();
                (
                    Compare::mod_revision(key, CompareOp::Equal, at),
                    Written::Over,
                )
            }
            Some(_) => return Ok(KeyHolder::Another),
        };
        let value = registration.provider.value();
        let put = TxnOp::put(key, value, Some(PutOptions::new().with_lease(lease)));
        let txn = Txn::new().when([unchanged]).and_then([put]);
        let answer = registration.within(client.txn(txn)).await?;
        Ok(match answer.succeeded() {
            true => KeyHolder::Us(written),
            // Another provider wrote the key between the two requests.
            false => KeyHolder::Another,
        })
    }

    /// Whether the value found has this provider's address: then it is from an earlier run of it.
    fn is_same_place(&self, there: &[u8]) -> bool {
        let Provider { key, address, .. } = &self.registration.provider;
        sockets(key, there).contains(&(address.ip().to_canonical(), address.port()))
    }
}
