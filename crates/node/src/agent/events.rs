//! How the agent handles the courier's events.

use std::sync::Arc;
use std::time::Instant;

use heddle_model::calendar::utc;
use heddle_model::{Mesh, SpiffeId};
use heddle_transport::Leaf;
use heddle_xds::{Certificate, ClientError, TrustUpdate};
use rustls_pki_types::CertificateDer;

use super::Agent;
use super::courier::{Broken, ControlConnection, CourierOrder, Event};
use super::disk::{Pair, Write};
use super::key::LeafKey;
use super::moment::Moment;
use super::state::check_mesh;

impl Agent {
    pub(super) async fn happened(&mut self, event: Event) {
        let now = self.now();
        match event {
            Event::Up(link) => {
                let ControlConnection {
                    peer,
                    mesh_address,
                    orders,
                } = link;
                self.view.reached_at(mesh_address);
                tracing::info!(
                    until = utc(peer.not_after),
                    "connected to the control plane"
                );
                self.clock.raise(peer.not_before);
                let mut core = self.core();
                core.link_up(now);
                drop(core);
                (self.orders, self.peer) = (Some(orders), Some(peer));
            }
            Event::Down(Broken {
                why, is_refusal, ..
            }) => {
                let mut core = self.core();
                let why = match is_refusal {
                    true => core.link_refused(why, now),
                    false => core.link_down(why, now),
                };
                drop(core);
                tracing::warn!("the control plane is not reached: {why}");
                self.orders = None;
            }
            Event::Trust(update) => self.trust(update),
            Event::Mesh(epoch, mesh) => self.new_mesh(epoch, mesh).await,
            Event::NoMesh(why) => {
                tracing::error!("the control plane sends no mesh: {why}");
                let what = format!("the control plane sends no mesh: {why}");
                self.core().problem("mesh", Some(what));
            }
            Event::Issued(id, key, answer) => self.issued(id, key, answer).await,
        }
    }

    fn trust(&mut self, update: TrustUpdate) {
        if let Some(bundle) = &update.bundle {
            let roots = bundle.roots.len();
            tracing::info!(generation = bundle.generation, roots, "roots to trust");
        }
        if let Some(denied) = &update.denied {
            let entries = denied.entries.len();
            tracing::info!(generation = denied.generation, entries, "deny-list");
        }
        let trusted = self.core().trust(&update);
        let problem = trusted.err().map(|why| {
            tracing::error!("the trust update is refused: {why}");
            format!("the trust update of the control plane is refused: {why}")
        });
        let is_refused = problem.is_some();
        self.core().problem("trust", problem);
        if is_refused {
            return;
        }
        let TrustUpdate { bundle, denied } = self.unconfirmed.take().unwrap_or(TrustUpdate {
            bundle: None,
            denied: None,
        });
        self.unconfirmed = Some(TrustUpdate {
            bundle: update.bundle.or(bundle),
            denied: update.denied.or(denied),
        });
        let refused = self
            .peer
            .as_ref()
            .and_then(|peer| self.core().check_peer(peer).err());
        if let Some(refusal) = refused {
            tracing::warn!("the control plane's certificate is not accepted any more: {refusal}");
            self.show();
            self.reconnect();
        }
    }

    async fn new_mesh(&mut self, epoch: String, mesh: Box<Mesh>) {
        let none = Mesh::default();
        let before = self.checked.as_ref().map_or(&none, |before| &before.1);
        let checked = check_mesh(&mesh, before, self.core().trusted());
        let problem = checked.err().map(|why| {
            let generation = mesh.generation;
            tracing::error!(
                generation,
                "a mesh was refused, the last one is still served: {why}"
            );
            format!("the mesh of generation {generation} was refused: {why}")
        });
        let is_refused = problem.is_some();
        self.core().problem("mesh", problem);
        if is_refused {
            return;
        }
        self.want(&mesh).await;
        self.show();
        let now = Instant::now();
        let to_keep = Arc::new((epoch, mesh.clone()));
        self.checked = Some(Arc::clone(&to_keep));
        if let Some(at_once) = self.mesh_file.put(to_keep, now) {
            self.save(Write::Mesh(at_once)).await;
        }
        self.held_back.put(mesh, now);
    }

    /// Sets the wanted identities to those of a mesh's workloads, and removes all others from the disk.
    pub(super) async fn want(&mut self, mesh: &Mesh) {
        let dropped = self.core().want(mesh);
        for id in dropped {
            self.save(Write::Forget(id)).await;
        }
    }

    async fn issued(
        &mut self,
        id: SpiffeId,
        key: LeafKey,
        answer: Result<Certificate, ClientError>,
    ) {
        let now = self.now();
        let chain = match self.take(&id, &key, answer, now) {
            Ok(Some(chain)) => chain,
            Ok(None) => return,
            Err(why) => {
                tracing::warn!(%id, "no certificate, trying again: {why}");
                return;
            }
        };
        let is_own = id.service_account().is_none();
        let pkcs8 = key.pkcs8().clone();
        let pair = Arc::new(Pair { id, pkcs8, chain });
        self.save(match is_own {
            true => Write::Own(pair),
            false => Write::Leaf(pair),
        })
        .await;
        if is_own {
            self.show();
            self.reconnect();
        }
    }

    /// Has the courier reconnect with the newest credentials. Pending requests on the old connection are still
    /// answered.
    fn reconnect(&mut self) {
        if let Some(orders) = self.orders.take() {
            // Fails if the queue is full or the connection has ended. A connection ends anyway once its order channel
            // is closed.
            let _ = orders.try_send(CourierOrder::Reconnect);
        }
    }

    /// Puts a valid certificate to use. Returns the chain to write to disk; `None` when the identity is not wanted any
    /// more.
    fn take(
        &self,
        id: &SpiffeId,
        key: &LeafKey,
        answer: Result<Certificate, ClientError>,
        now: Moment,
    ) -> Result<Option<Vec<CertificateDer<'static>>>, String> {
        let leaf = answer
            .map_err(|error| error.to_string())
            .and_then(|certificate| {
                let chain = certificate.chain.iter().map(|der| der.to_vec()).collect();
                let leaf = Leaf::new(chain, key.pkcs8()).map_err(|error| error.to_string())?;
                Ok((leaf, certificate.chain))
            });
        let mut core = self.core();
        let (leaf, chain) = match leaf {
            Ok(leaf) => leaf,
            Err(why) => {
                core.failed(id, why.clone(), now);
                return Err(why);
            }
        };
        let until = utc(leaf.not_after());
        core.issued(id, Arc::new(leaf), now)
            .map_err(|refusal| refusal.to_string())?;
        let is_wanted = core.wants(id);
        if is_wanted {
            tracing::info!(%id, until, "certificate");
        }
        Ok(is_wanted.then_some(chain))
    }
}
