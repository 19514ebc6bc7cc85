//! Load balancing.

use heddle_model::{Balancer, Balancing, Ejection, Failing, HashOn, Line, RetryBudget};

use super::fields::percent;
use crate::proto;
use crate::trust::Invalid;

impl From<Balancer> for proto::Balancer {
    fn from(balancer: Balancer) -> Self {
        match balancer {
            Balancer::LeastRequest => Self::LeastRequest,
            Balancer::RoundRobin => Self::RoundRobin,
            Balancer::PeakEwma => Self::PeakEwma,
            Balancer::RingHash => Self::RingHash,
        }
    }
}

impl From<proto::Balancer> for Balancer {
    fn from(balancer: proto::Balancer) -> Self {
        match balancer {
            proto::Balancer::LeastRequest => Self::LeastRequest,
            proto::Balancer::RoundRobin => Self::RoundRobin,
            proto::Balancer::PeakEwma => Self::PeakEwma,
            proto::Balancer::RingHash => Self::RingHash,
        }
    }
}

impl From<&Balancing> for proto::Balancing {
    fn from(balancing: &Balancing) -> Self {
        Self {
            hash_header: match &balancing.hash_on {
                HashOn::Source => String::new(),
                HashOn::Header(name) => name.clone(),
            },
            max_waiting: balancing.line.max_waiting,
            max_wait_ms: balancing.line.max_wait_ms,
            ejection: balancing.ejection.as_ref().map(Into::into),
            retry_percent: balancing.retry_budget.percent.into(),
            retry_min_per_second: balancing.retry_budget.min_per_second,
            slow_start_ms: balancing.slow_start_ms,
        }
    }
}

impl TryFrom<proto::Balancing> for Balancing {
    type Error = Invalid;

    fn try_from(message: proto::Balancing) -> Result<Self, Invalid> {
        Ok(Self {
            hash_on: match message.hash_header.is_empty() {
                true => HashOn::Source,
                false => HashOn::Header(message.hash_header),
            },
            line: Line {
                max_waiting: message.max_waiting,
                max_wait_ms: message.max_wait_ms,
            },
            ejection: message.ejection.map(TryInto::try_into).transpose()?,
            retry_budget: RetryBudget {
                percent: percent(message.retry_percent, "service.balancing.retry_percent")?,
                min_per_second: message.retry_min_per_second,
            },
            slow_start_ms: message.slow_start_ms,
        })
    }
}

impl From<&Ejection> for proto::Ejection {
    fn from(ejection: &Ejection) -> Self {
        let on = match ejection.on {
            Failing::ServerError => proto::Failing::ServerError,
            Failing::GatewayFailure => proto::Failing::GatewayFailure,
        };
        Self {
            after: ejection.after,
            on: on.into(),
            base_ms: ejection.base_ms,
            max_percent: ejection.max_percent.into(),
        }
    }
}

impl TryFrom<proto::Ejection> for Ejection {
    type Error = Invalid;

    fn try_from(message: proto::Ejection) -> Result<Self, Invalid> {
        let on = proto::Failing::try_from(message.on);
        Ok(Self {
            after: message.after,
            on: match on.map_err(|_| Invalid("service.balancing.ejection.on"))? {
                proto::Failing::ServerError => Failing::ServerError,
                proto::Failing::GatewayFailure => Failing::GatewayFailure,
            },
            base_ms: message.base_ms,
            max_percent: percent(
                message.max_percent,
                "service.balancing.ejection.max_percent",
            )?,
        })
    }
}
