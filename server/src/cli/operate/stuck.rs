//! `oncebox quarantine` and `oncebox blocked`. Tests: `tests/operate/queries.rs`.

use serde_json::json;

use super::CommandError;
use super::print;
use super::queries::PAGE;
use super::target::TargetArgs;
use crate::cli::out::{self, Cell, table};
use crate::operator::wire;

#[derive(Debug, clap::Args)]
pub(crate) struct QuarantineArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// Only messages with this reason
    #[arg(long)]
    reason: Option<wire::QuarantineReasonWord>,
    /// Only messages of this tenant
    #[arg(long)]
    tenant: Option<String>,
    /// Maximum messages, 1 to 10,000
    #[arg(long, default_value_t = 100, value_parser = super::many)]
    limit: usize,
    /// Continue after the previous page, with the value it printed as `next`
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
    let client = args.target.open().await?;
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
    if args.target.json {
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
    target: TargetArgs,
    /// Only messages of this tenant
    #[arg(long)]
    tenant: Option<String>,
    /// Maximum ordering keys, 1 to 1,000
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    limit: u64,
}

pub(super) async fn blocked(args: &BlockedArgs) -> Result<(), CommandError> {
    let query =
        wire::BlockedQuery { tenant: args.tenant.as_deref().map(Into::into), limit: Some(args.limit) };
    let blocked = args.target.open().await?.blocked(&query).await?.blocked;
    if args.target.json {
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
        &["HANDLER", "ORDERING KEY", "WAITING", "OLDEST", "SINCE", "BLOCKED BY"],
        &rows,
        out::colours(),
    ))
}
