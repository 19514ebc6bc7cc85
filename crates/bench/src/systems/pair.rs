//! Two proxies of the same kind, with mutual TLS between them.

use std::fs;
use std::net::SocketAddr;

use anyhow::bail;

use super::{
    Endpoint, ProxyKind, READY_WITHIN, Running, Service, System, Work, configuration,
    targets_from_status,
};
use crate::ask;
use crate::authority::Authority;
use crate::child::{Child, Confinement};
use crate::meter::Meter;
use crate::nodes::{self, NEAR, Nodes, Site, free_address};

/// A request that the policy at the second proxy allows to the first one's identity.
pub(crate) const ALLOWED: (&str, &str) = ("GET", "/api/v1/items/128");
/// Requests that the policy refuses with 403, though the first proxy passes them on.
pub(crate) const REFUSED: [(&str, &str); 2] = [
    ("GET", "/api/v2/items/128"),
    ("DELETE", "/api/v1/items/128"),
];

impl System {
    /// Starts a pair with certificates of this authority, and waits until a request comes through.
    ///
    /// # Errors
    /// When one does not start, or no request comes through in time.
    pub(crate) fn start_pair(
        &self,
        work: &Work,
        place: &Confinement,
        root: &Authority,
    ) -> anyhow::Result<Running> {
        let dir = tempfile::Builder::new().prefix("heddle-lab-").tempdir()?;
        match self.kind {
            ProxyKind::Envoy => self.envoys(work, place, root, dir),
            ProxyKind::Heddle => self.heddles(work, place, root, dir),
            ProxyKind::Haproxy | ProxyKind::Nginx | ProxyKind::H2 => {
                bail!("{} is not measured in pairs", self.name)
            }
        }
    }

    fn envoys(
        &self,
        work: &Work,
        place: &Confinement,
        authority: &Authority,
        dir: tempfile::TempDir,
    ) -> anyhow::Result<Running> {
        let work = &Work {
            http2: self.http2,
            ..work.clone()
        };
        authority.write_root(dir.path())?;
        for account in ["near", "far"] {
            authority.leaf(account)?.write(dir.path(), account)?;
        }
        let (listen, between) = (free_address()?, free_address()?);
        let admin = free_address()?;
        let start = |name: &str, template, work: &Work, listen, admin| {
            let config = dir.path().join(format!("{name}.yaml"));
            let text = configuration(template, work, listen, admin, dir.path())?;
            fs::write(&config, text)?;
            let mut command = vec![self.program.clone().into()];
            command.extend(self.arguments(&config, dir.path()));
            let log = dir.path().join(format!("{name}.log"));
            Child::start(
                &format!("{} {name}", self.name),
                place,
                &command,
                &log,
                false,
            )
        };
        let far = start(
            "far",
            include_str!("../../peers/envoy-far.yaml.j2"),
            work,
            between,
            free_address()?,
        )?;
        let onward = work.by_way_of(between)?;
        let mut near = start(
            "near",
            include_str!("../../peers/envoy.yaml.j2"),
            &onward,
            listen,
            admin,
        )?;
        let target = |service: &Service| format!("{}@{listen}", service.host);
        let targets: Vec<String> = work.services.iter().map(target).collect();
        near.wait_until(READY_WITHIN, || comes_through(&targets))?;
        Ok(Running {
            between: Some(between),
            meter: Some(Meter::Envoy(admin)),
            ..Running::of(vec![near, far], targets, Vec::new(), dir)
        })
    }

    fn heddles(
        &self,
        work: &Work,
        place: &Confinement,
        authority: &Authority,
        dir: tempfile::TempDir,
    ) -> anyhow::Result<Running> {
        let template = include_str!("../../peers/heddle.yaml.j2");
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
        nodes::write_manifest(
            dir.path(),
            &configuration(template, work, nowhere, nowhere, dir.path())?,
        )?;
        let mut nodes = Nodes::start(&Site {
            heddle: &self.program,
            dir: dir.path(),
            place,
            control_settings: None,
            settings: self.settings.as_deref(),
            apart: None,
            etcd: None,
            root: authority,
        })?;
        let near = &mut nodes.near;
        let (heddle, socket) = (near.heddle.clone(), near.socket.clone());
        let targets = near.child.wait_until(READY_WITHIN, || {
            let status = nodes::status(&heddle, &socket)?;
            let targets = targets_from_status(&status, work, Some(NEAR))?;
            comes_through(&targets)?;
            Some(targets)
        })?;
        let proxies = vec![nodes.near.child, nodes.far.child];
        Ok(Running {
            between: Some(nodes.far.mesh),
            meter: Some(Meter::Heddle(socket)),
            ..Running::of(proxies, targets, vec![nodes.control], dir)
        })
    }
}

impl Work {
    /// The same work for a proxy that forwards everything to another.
    pub(super) fn by_way_of(&self, next: SocketAddr) -> anyhow::Result<Work> {
        let SocketAddr::V4(next) = next else {
            bail!("{next} is no IPv4 address");
        };
        let service = |service: &Service| Service {
            endpoints: vec![Endpoint {
                address: *next.ip(),
                port: next.port(),
            }],
            ..service.clone()
        };
        Ok(Work {
            services: self.services.iter().map(service).collect(),
            ..self.clone()
        })
    }
}

/// Whether every target answers the allowed request with 200.
pub(super) fn comes_through(targets: &[String]) -> Option<()> {
    let (method, path) = ALLOWED;
    let answers = |target: &String| matches!(ask::status(target, method, path, "ready"), Ok(200));
    targets.iter().all(answers).then_some(())
}
