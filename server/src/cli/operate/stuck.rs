//! What waits for a person beside poisoned entries: messages that were quarantined, and ordering keys that are held back.

use serde_json::json;

use super::CommandError;
use super::print;
use super::queries::PAGE;
use super::target::TargetArgs;
use crate::api::wire;
use crate::cli::out::{self, Cell, table};

#[derive(Debug, clap::Args)]
pub(crate) struct QuarantineArgs {
    #[command(flatten)]
    place: TargetArgs,
    /// Only those that are quarantined for this reason: `conflict` (the key was known with another payload) or `stale` (older than what
    /// is remembered).
    #[arg(long)]
    reason: Option<wire::QuarantineReasonWord>,
    /// Of one tenant alone.
    #[arg(long)]
    tenant: Option<String>,
    /// At most this many: 1 to 10,000.
    #[arg(long, default_value_t = 100, value_parser = super::many)]
    limit: usize,
    /// Go on where the last list ended: what it printed after `next`.
    #[arg(long, value_name = "NUMBER")]
    after: Option<i64>,
}

pub(super) async fn quarantine(args: &QuarantineArgs) -> Result<(), CommandError> {
    let mut query = wire::QuarantineQuery {
        reason: args.reason,
        tenant: args.tenant.as_deref().map(Into::into),
        after: args.after,
        limit: None,
    };
    let client = args.place.open().await?;
    let mut quarantined = Vec::new();
    loop {
        query.limit = Some(PAGE.min(args.limit - quarantined.len()) as u64);
        let page = client.quarantined(&query).await?;
        quarantined.extend(page.quarantined);
        query.after = page.next;
        if query.after.is_none() || quarantined.len() >= args.limit {
            break;
        }
    }
    if args.place.json {
        quarantined.iter().try_for_each(print::json)?;
        return print::json(&json!({ "next": query.after }));
    }
    let row = |one: &wire::QuarantinedItem| {
        vec![
            Cell::new(one.reason.as_str()),
            Cell::new(&one.message.source),
            Cell::new(&one.message.id),
            Cell::new(&one.message.message_type),
            Cell::new(one.received_at.to_string()),
            Cell::new(one.payload_bytes.to_string()),
            Cell::new(one.key.0.to_string()),
        ]
    };
    let rows: Vec<_> = quarantined.iter().map(row).collect();
    let head = ["REASON", "SOURCE", "ID", "TYPE", "RECEIVED", "BYTES", "KEY"];
    out::print(&table(&head, &rows, out::colours()))?;
    if let Some(next) = query.after {
        out::eprint_note(&format!("next: {next}"));
    }
    Ok(())
}

#[derive(Debug, clap::Args)]
pub(crate) struct BlockedArgs {
    #[command(flatten)]
    place: TargetArgs,
    /// Of one tenant alone.
    #[arg(long)]
    tenant: Option<String>,
    /// At most this many: 1 to 1,000.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    limit: u64,
}

pub(super) async fn blocked(args: &BlockedArgs) -> Result<(), CommandError> {
    let query =
        wire::BlockedQuery { tenant: args.tenant.as_deref().map(Into::into), limit: Some(args.limit) };
    let blocked = args.place.open().await?.blocked(&query).await?.blocked;
    if args.place.json {
        return blocked.iter().try_for_each(print::json);
    }
    let row = |one: &wire::BlockedOrderingKey| {
        vec![
            Cell::new(&one.handler),
            Cell::new(&one.ordering_key),
            Cell::new(one.waiting.to_string()),
            Cell::new(one.oldest.map_or_else(String::new, |oldest| oldest.to_string())),
            Cell::new(one.since.to_string()),
            Cell::new(one.head_key.0.to_string()),
        ]
    };
    let rows: Vec<_> = blocked.iter().map(row).collect();
    out::print(&table(
        &["HANDLER", "ORDERING KEY", "WAITING", "OLDEST", "SINCE", "HELD BACK BY"],
        &rows,
        out::colours(),
    ))
}
