//! Changes to requests and responses.

use heddle_model::{Filters, HeaderEdits, PathRewrite, Redirect, Rewrite};

use super::fields::{or_empty, pair_messages, pairs, port, some_text};
use crate::proto;
use crate::trust::Invalid;

/// The message; `None` for filters that change nothing.
pub(super) fn filters_message(filters: &Filters) -> Option<proto::Filters> {
    (!filters.is_empty()).then(|| proto::Filters {
        request: edits_message(&filters.request),
        response: edits_message(&filters.response),
        rewrite: filters.rewrite.as_ref().map(Into::into),
    })
}

/// The inverse of [`filters_message`].
pub(super) fn filters(message: Option<proto::Filters>) -> Result<Filters, Invalid> {
    let message = message.unwrap_or_default();
    Ok(Filters {
        request: edits(message.request),
        response: edits(message.response),
        rewrite: message.rewrite.map(TryInto::try_into).transpose()?,
    })
}

fn edits_message(edits: &HeaderEdits) -> Option<proto::HeaderEdits> {
    (!edits.is_empty()).then(|| proto::HeaderEdits {
        set: pair_messages(&edits.set),
        add: pair_messages(&edits.add),
        remove: edits.remove.clone(),
    })
}

fn edits(message: Option<proto::HeaderEdits>) -> HeaderEdits {
    let message = message.unwrap_or_default();
    HeaderEdits {
        set: pairs(message.set),
        add: pairs(message.add),
        remove: message.remove,
    }
}

impl From<&Rewrite> for proto::Rewrite {
    fn from(rewrite: &Rewrite) -> Self {
        Self {
            hostname: or_empty(rewrite.hostname.as_ref()),
            path: rewrite.path.as_ref().map(Into::into),
        }
    }
}

impl TryFrom<proto::Rewrite> for Rewrite {
    type Error = Invalid;

    fn try_from(message: proto::Rewrite) -> Result<Self, Invalid> {
        Ok(Self {
            hostname: some_text(message.hostname),
            path: message.path.map(TryInto::try_into).transpose()?,
        })
    }
}

impl From<&PathRewrite> for proto::PathRewrite {
    fn from(path: &PathRewrite) -> Self {
        use proto::path_rewrite::Path;
        Self {
            path: Some(match path {
                PathRewrite::ReplaceFull(path) => Path::Full(path.clone()),
                PathRewrite::ReplacePrefix(prefix) => Path::Prefix(prefix.clone()),
            }),
        }
    }
}

impl TryFrom<proto::PathRewrite> for PathRewrite {
    type Error = Invalid;

    fn try_from(message: proto::PathRewrite) -> Result<Self, Invalid> {
        use proto::path_rewrite::Path;
        match message.path.ok_or(Invalid("service.actions.path"))? {
            Path::Full(path) => Ok(Self::ReplaceFull(path)),
            Path::Prefix(prefix) => Ok(Self::ReplacePrefix(prefix)),
        }
    }
}

impl From<&Redirect> for proto::Redirect {
    fn from(redirect: &Redirect) -> Self {
        Self {
            scheme: or_empty(redirect.scheme.as_ref()),
            hostname: or_empty(redirect.hostname.as_ref()),
            path: redirect.path.as_ref().map(Into::into),
            port: redirect.port.map_or(0, Into::into),
            status: redirect.status.into(),
        }
    }
}

impl TryFrom<proto::Redirect> for Redirect {
    type Error = Invalid;

    fn try_from(message: proto::Redirect) -> Result<Self, Invalid> {
        Ok(Self {
            scheme: some_text(message.scheme),
            hostname: some_text(message.hostname),
            path: message.path.map(TryInto::try_into).transpose()?,
            port: match message.port {
                0 => None,
                number => Some(port(number, "service.actions.redirect.port")?),
            },
            status: u16::try_from(message.status)
                .map_err(|_| Invalid("service.actions.redirect.status"))?,
        })
    }
}
