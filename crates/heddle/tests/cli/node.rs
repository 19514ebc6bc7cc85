//! A minimal node: it joins, requests certificates and confirms, but carries no traffic.

use std::net::SocketAddr;
use std::sync::Arc;

use heddle_model::Mesh;
use heddle_model::{NodeName, SpiffeId};
use heddle_transport::control::Connector;
use heddle_transport::secrets::JoinToken;
use heddle_transport::{Clock, Denied, Leaf, Trust};
use heddle_xds::{
    Certificate, Client, ClientError, Discovery, NodeMesh, Registration, TrustUpdate,
};
use rcgen::{CertificateParams, KeyPair};
use tokio::net::TcpStream;

/// A node with a key, and a certificate for it.
pub(crate) struct TestNode {
    pub(crate) name: NodeName,
    pub(crate) leaf: Leaf,
    trust: Arc<Trust>,
    control: SocketAddr,
}

fn clock() -> Arc<Clock> {
    Arc::new(Clock::new(0))
}

/// A certificate request, and its key.
fn request() -> (KeyPair, Vec<u8>) {
    let key = KeyPair::generate().expect("a key");
    let request = CertificateParams::default().serialize_request(&key);
    let request = request.expect("a request").der().to_vec();
    (key, request)
}

fn leaf(certificate: &Certificate, key: &KeyPair) -> Leaf {
    let chain = certificate.chain.iter().map(|der| der.to_vec()).collect();
    Leaf::new(chain, &key.serialize_der().into()).expect("a leaf")
}

async fn connect(control: SocketAddr, connector: &Connector) -> Result<Client, String> {
    let stream = TcpStream::connect(control).await.expect("connected");
    let connected = connector.connect(stream).await;
    let (stream, _) = connected.map_err(|error| error.to_string())?;
    Client::over(stream)
        .await
        .map_err(|error| error.to_string())
}

impl TestNode {
    pub(crate) async fn join(
        control: SocketAddr,
        name: &str,
        token: &str,
    ) -> Result<TestNode, String> {
        let token = JoinToken::parse(token).expect("a token");
        let name = NodeName::parse(name).expect("a name");
        let connector = Connector::joining(token.root_sha256, &clock()).expect("a connector");
        let client = connect(control, &connector).await?;
        let (key, request) = request();
        let secret = (token.id.as_str(), token.secret.as_bytes());
        let joined = client.join(&name, secret, &request).await;
        let joined = joined.map_err(|error| error.to_string())?;
        let roots: Vec<_> = joined
            .bundle
            .roots
            .iter()
            .map(|root| root.to_vec())
            .collect();
        let trust = Trust::new(joined.trust_domain, &roots, Denied::default());
        Ok(TestNode {
            name,
            leaf: leaf(&joined.certificate, &key),
            trust: Arc::new(trust.expect("trust")),
            control,
        })
    }

    /// Connects with the node's certificate and trust.
    pub(crate) async fn client(&self) -> Result<Client, String> {
        let connector = Connector::joined(&self.leaf, &self.trust, &clock());
        connect(self.control, &connector.expect("a connector")).await
    }

    /// Uses a control plane that was started again at another address.
    pub(crate) fn moved(&mut self, control: SocketAddr) {
        self.control = control;
    }

    /// Uses another node's certificate and key from now on.
    pub(crate) fn show(&mut self, other: TestNode) {
        self.leaf = other.leaf;
    }

    pub(crate) fn believe(&mut self, update: &TrustUpdate) {
        let Some(bundle) = &update.bundle else { return };
        let roots: Vec<_> = bundle.roots.iter().map(|root| root.to_vec()).collect();
        let domain = self.trust.domain().clone();
        let trust = Trust::new(domain, &roots, Denied::default());
        self.trust = Arc::new(trust.expect("trust"));
    }

    pub(crate) fn id(&self) -> SpiffeId {
        SpiffeId::node(self.trust.domain().clone(), self.name.clone())
    }

    pub(crate) async fn issue(&self, client: &Client, id: &str) -> Result<Leaf, ClientError> {
        let (key, request) = request();
        let id = SpiffeId::parse(id).expect("an id");
        let issued = client.issue(&id, &request).await?;
        Ok(leaf(&issued, &key))
    }

    pub(crate) async fn renew(&mut self, client: &Client) {
        let id = self.id().to_string();
        self.leaf = self.issue(client, &id).await.expect("renewed");
    }

    /// Begins to follow the node's part of the mesh.
    pub(crate) async fn watch_mesh(&self, client: &Client, at: &str) -> Watch {
        let registration = Registration {
            node: self.name.clone(),
            mesh_address: at.parse().expect("an address"),
        };
        let mut mesh = NodeMesh::new(self.name.clone());
        let discovery = client.discover(&registration, &mut mesh).await;
        let discovery = discovery.expect("a call");
        Watch { discovery, mesh }
    }
}

/// A discovery call, and what it has brought.
pub(crate) struct Watch {
    discovery: Discovery,
    mesh: NodeMesh,
}

impl Watch {
    /// Epoch and content of the next mesh.
    pub(crate) async fn next(&mut self) -> Result<(String, Mesh), ClientError> {
        let update = self.discovery.next(&mut self.mesh).await?;
        Ok((update.epoch, update.mesh))
    }
}
