//! Settings of the mesh, nodes, and addresses of workloads.

use std::net::IpAddr;

use heddle_model::{
    Cidr, Forwarding, MAX_ADDRESS_RANGES, MAX_GATEWAY_ACCOUNTS, MAX_LAZY_ACCOUNTS, Node, NodeName,
    ServiceAccountName, Shared, TrustDomain, is_one_place,
};

use super::fields::{
    ip, ip_bytes, or_empty, socket_address, socket_address_message, some_node, workload_name,
};
use super::{AddressOf, Holder, InvalidResource, Settings};
use crate::proto;
use crate::trust::Invalid;

impl From<&Settings> for proto::MeshSettings {
    fn from(settings: &Settings) -> Self {
        Self {
            trust_domain: settings.trust_domain.to_string(),
            single_node: settings.single_node,
            address_ranges: settings.address_ranges.iter().map(Into::into).collect(),
            gateways: texts(&settings.forwarding.gateways),
            lazy_accounts: texts(&settings.forwarding.lazy),
        }
    }
}

impl TryFrom<proto::MeshSettings> for Settings {
    type Error = Invalid;

    fn try_from(message: proto::MeshSettings) -> Result<Self, Invalid> {
        let address_ranges = message.address_ranges.iter();
        let address_ranges = address_ranges.map(range).collect::<Result<Vec<_>, _>>()?;
        if address_ranges.len() > MAX_ADDRESS_RANGES || !address_ranges.is_sorted_by(|a, b| a < b) {
            return Err(Invalid(RANGES));
        }
        Ok(Self {
            trust_domain: TrustDomain::parse(&message.trust_domain)
                .map_err(|_| Invalid("mesh_settings.trust_domain"))?,
            single_node: message.single_node,
            address_ranges,
            forwarding: Shared::from(Forwarding {
                gateways: accounts(
                    &message.gateways,
                    MAX_GATEWAY_ACCOUNTS,
                    "mesh_settings.gateways",
                )?,
                lazy: accounts(
                    &message.lazy_accounts,
                    MAX_LAZY_ACCOUNTS,
                    "mesh_settings.lazy_accounts",
                )?,
            }),
        })
    }
}

fn texts(accounts: &[ServiceAccountName]) -> Vec<String> {
    accounts.iter().map(ToString::to_string).collect()
}

fn accounts(
    written: &[String],
    most: usize,
    field: &'static str,
) -> Result<Vec<ServiceAccountName>, Invalid> {
    let accounts = written.iter().map(|name| ServiceAccountName::parse(name));
    let accounts: Vec<_> = accounts
        .collect::<Result<_, _>>()
        .map_err(|_| Invalid(field))?;
    match accounts.len() <= most && accounts.is_sorted_by(|a, b| a < b) {
        true => Ok(accounts),
        false => Err(Invalid(field)),
    }
}

const RANGES: &str = "mesh_settings.address_ranges";

fn range(message: &proto::AddressRange) -> Result<Cidr, Invalid> {
    let prefix = u8::try_from(message.prefix).map_err(|_| Invalid(RANGES))?;
    Cidr::new(ip(&message.network, RANGES)?, prefix).ok_or(Invalid(RANGES))
}

impl From<&Cidr> for proto::AddressRange {
    fn from(range: &Cidr) -> Self {
        Self {
            network: ip_bytes(range.network()),
            prefix: range.prefix().into(),
        }
    }
}

impl From<&Node> for proto::Node {
    fn from(node: &Node) -> Self {
        Self {
            address: Some(socket_address_message(node.address)),
        }
    }
}

pub(super) fn node(name: NodeName, message: proto::Node) -> Result<Node, InvalidResource> {
    let node = Node {
        name,
        address: socket_address(message.address, "node.address")?,
    };
    node.check_invariants()
        .map_err(InvalidResource::Invariant)?;
    Ok(node)
}

impl From<&AddressOf> for proto::Address {
    fn from(address: &AddressOf) -> Self {
        Self {
            holders: address.holders.iter().map(Into::into).collect(),
        }
    }
}

impl From<&Holder> for proto::AddressHolder {
    fn from(holder: &Holder) -> Self {
        Self {
            workload: holder.workload.to_string(),
            node: or_empty(holder.node.as_ref()),
            first: holder.first.map(ip_bytes).unwrap_or_default(),
        }
    }
}

pub(super) fn address(
    address: IpAddr,
    message: proto::Address,
) -> Result<AddressOf, InvalidResource> {
    if !is_one_place(address) {
        return Err(InvalidResource::Name("IP of one machine"));
    }
    let holders = message.holders.into_iter();
    let holders = holders
        .map(|holder| self::holder(address, &holder))
        .collect::<Result<Vec<_>, _>>()?;
    let is_sorted = holders.is_sorted_by(|one, next| one.workload < next.workload);
    match is_sorted && !holders.is_empty() {
        true => Ok(AddressOf { address, holders }),
        false => Err(Invalid("address.holders").into()),
    }
}

fn holder(address: IpAddr, message: &proto::AddressHolder) -> Result<Holder, Invalid> {
    const FIRST: &str = "address.holders.first";
    let first = match message.first.is_empty() {
        true => None,
        false => Some(ip(&message.first, FIRST)?),
    };
    if first.is_some_and(|first| first == address || !is_one_place(first)) {
        return Err(Invalid(FIRST));
    }
    Ok(Holder {
        workload: workload_name(&message.workload, "address.holders.workload")?,
        node: some_node(&message.node, "address.holders.node")?,
        first,
    })
}
