//! `heddle token`.

use std::time::Duration;

use heddle_model::NodeName;
use heddle_model::calendar::utc;
use heddle_model::printable;
use heddle_node::arguments::node_name;
use heddle_node::exit::{Exit, Failure, say};
use heddle_node::table;
use heddle_node::time;

use super::Asked;
use crate::order::{Changed, Order, TokenCreated, TokenStatus};
use crate::output::OutputFormat;

/// Let nodes join: make, list and revoke join tokens
///
/// A token lets one node of a given name join once, within a short time. It carries the digest of the authority's root,
/// by which the node tells the control plane from an attacker in between before it sends the secret.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: TokenCommand,
}

#[derive(Debug, clap::Subcommand)]
enum TokenCommand {
    /// Make a token and print it; it is not shown again
    ///
    /// Standard output has only the token. The control plane keeps only a digest: if a token got lost, revoke it and
    /// make another one.
    #[command(after_help = "Examples:
  heddle token create edge-1 > edge-1.token
  heddle token create edge-1 --ttl 15m | ssh edge-1 'heddle node --name edge-1 --token-file - …'
  heddle token create edge-1 --output json | jq -r .token

Exit codes:
  0  made
  1  failed, or the control plane refuses
  2  wrong command line
  4  no running heddle answers on the admin socket")]
    Create {
        /// The name of the node that may join with it
        #[arg(value_name = "NODE", value_parser = node_name)]
        node: NodeName,
        /// How long it can be used, at most 7d
        #[arg(long, alias = "life", value_name = "DURATION", default_value = "1h", value_parser = time::parse)]
        ttl: Duration,
        #[command(flatten)]
        asked: Asked,
    },
    /// List unused tokens, without their secrets
    #[command(after_help = "Exit codes: as for `heddle token create`")]
    List {
        #[command(flatten)]
        asked: Asked,
    },
    /// Revoke an unused token
    #[command(after_help = "Examples:
  heddle token revoke lPbl0xqNW1Cf

Exit codes: as for `heddle token create`")]
    Revoke {
        /// Its id, as `heddle token list` shows it
        #[arg(value_name = "ID", allow_hyphen_values = true)]
        id: String,
        #[command(flatten)]
        asked: Asked,
    },
}

pub(crate) fn run(args: Args) -> Result<Exit, Failure> {
    match args.command {
        TokenCommand::Create { node, ttl, asked } => create(&node, ttl, &asked),
        TokenCommand::List { asked } => {
            let tokens: Vec<TokenStatus> = asked.order(&Order::TokenList)?;
            asked.show(&tokens, |tokens| list(tokens))
        }
        TokenCommand::Revoke { id, asked } => {
            let changed: Changed = asked.order(&Order::TokenRevoke { id: id.clone() })?;
            asked.show(&changed, |_| format!("token {} is void\n", printable(&id)))
        }
    }?;
    Ok(Exit::Ok)
}

fn create(node: &NodeName, ttl: Duration, asked: &Asked) -> Result<(), Failure> {
    let (node, ttl_s) = (node.to_string(), ttl.as_secs());
    let created: TokenCreated = asked.order(&Order::TokenCreate { node, ttl_s })?;
    asked.show(&created, |created| created.token.to_string() + "\n")?;
    if matches!(asked.output, OutputFormat::Text | OutputFormat::Wide) {
        say(format_args!(
            "heddle: node {} may join with it once, until {}",
            printable(&created.node),
            utc(created.expires)
        ));
    }
    Ok(())
}

fn list(tokens: &[TokenStatus]) -> String {
    let rows = tokens.iter().map(|token| {
        let TokenStatus {
            id, node, expires, ..
        } = token;
        [id.clone(), node.clone(), utc(*expires)]
    });
    table::render(["ID", "NODE", "UNTIL"], rows)
}
