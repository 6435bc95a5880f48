//! Commands that change data. The audit log records the actor and reason of each. Tests: `tests/operate/actions.rs`.

use std::time::Duration;

use oncebox::HandlerKey;
use serde_json::json;

use super::CommandError;
use super::print;
use super::target::{ActorArgs, EntryFilterArgs, MessageArgs, TargetArgs, handler, not_found, usage};
use crate::cli::out;
use crate::cli::progress::ProgressLine;
use crate::operator::{BackfillPlan, OperatorClient, wire};

/// Prints the result of an action. An error names the operation id, so that the operator can repeat it.
pub(super) fn report_action(
    target: &TargetArgs,
    verb: &str,
    id: wire::OperationUuid,
    acted: Result<wire::ActionResponse, impl Into<CommandError>>,
) -> Result<wire::ActionResponse, CommandError> {
    let acted = acted.map_err(|failed| failed.into().context(format!("{verb}, operation {}", id.0)))?;
    if target.json {
        print::json(&acted)?;
    } else {
        let outcome = match (acted.repeated, acted.changed) {
            (true, _) => "already done",
            (false, Some(false)) => "changed nothing",
            _ => "done",
        };
        let legacy = match &acted.legacy[..] {
            [] => String::new(),
            former => format!(", also for the former keys {}", former.join(", ")),
        };
        out::line(&format!("{verb} {outcome}{legacy} (operation {})", id.0))?;
        if let Some(entry) = &acted.entry {
            print::entries(std::slice::from_ref(entry))?;
        }
    }
    Ok(acted)
}

#[derive(Debug, clap::Args)]
pub(crate) struct EntryActionArgs {
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    audit: ActorArgs,
    #[command(flatten)]
    message: MessageArgs,
    #[command(flatten)]
    which: EntryFilterArgs,
    /// Apply to all matching entries (default: dry run)
    #[arg(long)]
    confirm: bool,
    /// Refuse unless exactly this many entries match, as in the dry run
    #[arg(long, value_name = "COUNT", requires = "confirm")]
    expect: Option<u64>,
    /// With a filter: maximum entries, 1 to 100,000
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    limit: u64,
    /// With a filter: maximum entries per second, 1 to 1,000
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    per_second: u64,
    /// With a filter: stop after more than this many are poisoned again
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(0..=100_000))]
    failures: u64,
    /// Continue an operation that failures stopped
    #[arg(long)]
    go_on: bool,
    /// Allow a filter that matches everything
    #[arg(long)]
    everything: bool,
}

impl EntryActionArgs {
    /// Returns true if the arguments select entries by a filter, without `--confirm`.
    pub(super) fn is_dry_run(&self) -> bool {
        !self.message.is_given() && !self.confirm
    }
}

/// Returns the name of a verb.
pub(super) const fn word(verb: wire::EntryVerb) -> &'static str {
    match verb {
        wire::EntryVerb::Retry => "retry",
        wire::EntryVerb::Discard => "discard",
        wire::EntryVerb::Replay => "replay",
        wire::EntryVerb::Unblock => "unblock",
    }
}

/// Runs an action on entries; returns true if failures stopped it.
pub(super) async fn entries(args: &EntryActionArgs, verb: wire::EntryVerb) -> Result<bool, CommandError> {
    let (source, tenant) = (args.which.source.as_deref(), args.which.tenant.as_deref());
    let Some(key) = args.message.find(&args.target, source, tenant)? else { return many(args, verb).await };
    // One entry and a filter together are ambiguous.
    if args.which.is_filter() || args.confirm || args.everything || args.go_on {
        return Err(usage(
            "--key and --id select one entry; remove the filter, --confirm, --everything and --go-on",
        ));
    }
    let named = args.which.handler.as_ref();
    let named = named.ok_or_else(|| usage("name the handler of the entry with --handler"))?;
    let action = wire::EntryAction {
        operation: args.audit.id(),
        actor: args.audit.actor(),
        reason: args.audit.reason()?,
        handler: named.as_str().into(),
    };
    let acted = args.target.open().await?.act(verb, &key, &action).await;
    let acted = acted.map_err(|failed| not_found(failed, &args.message, source));
    report_action(&args.target, word(verb), action.operation, acted).map(|_| false)
}

async fn many(args: &EntryActionArgs, verb: wire::EntryVerb) -> Result<bool, CommandError> {
    let plan = wire::BulkPlan {
        verb,
        which: args.which.wire(),
        limit: Some(args.limit),
        everything: args.everything,
    };
    let client = args.target.open().await?;
    if !args.confirm {
        return preview(&*client, args, &plan).await.map(|()| false);
    }
    let expected = match args.expect {
        Some(expected) => expected,
        None => client.preview(&plan).await?.count,
    };
    let wire::BulkPlan { verb, which, limit, everything } = plan;
    let action = wire::BulkAction {
        operation: args.audit.id(),
        actor: args.audit.actor(),
        reason: args.audit.reason()?,
        verb,
        which,
        limit,
        everything,
        expected,
        per_second: Some(args.per_second),
        failures: Some(args.failures),
        go_on: args.go_on,
    };
    let id = action.operation.0;
    // Printed before it starts, so that an operator can continue it after a crash.
    out::eprint_note(&format!("operation {id}: {expected} entries; continue with --operation {id}"));
    let progress = ProgressLine::of(expected, "entries");
    let mut on_progress = |report: &wire::BulkReport| {
        progress.at(report.done);
        progress.set_message(format!(
            "done, {} skipped (changed), {} failed again",
            report.refused, report.failed
        ));
    };
    let ended = client.bulk(&action, &mut on_progress).await;
    drop(progress);
    let report = ended.map_err(|failed| {
        CommandError::from(failed).context(format!("bulk {}, operation {id}", word(verb)))
    })?;
    print_report(&args.target, &report)?;
    Ok(report.state == "stopped")
}

fn print_report(target: &TargetArgs, report: &wire::BulkReport) -> Result<(), CommandError> {
    if target.json {
        return print::json(report);
    }
    let wire::BulkReport { state, done, refused, failed, .. } = report;
    out::line(&format!("{state}: {done} done, {refused} skipped (changed), {failed} failed again"))?;
    match state.as_str() {
        "stopped" => {
            out::eprint_note("check the failures, then continue with the same --operation and --go-on");
        }
        "capped" => out::eprint_note("more entries match; start a new operation, or raise --limit"),
        _ => {}
    }
    Ok(())
}

async fn preview(
    client: &dyn OperatorClient,
    args: &EntryActionArgs,
    plan: &wire::BulkPlan,
) -> Result<(), CommandError> {
    let progress = ProgressLine::unknown("counting");
    let preview = client.preview(plan).await?;
    drop(progress);
    let wire::BulkPreview { count, more, first } = &preview;
    if args.target.json {
        return print::json(&json!({ "dry_run": true, "count": count, "more": more, "first": first }));
    }
    let more = if *more { " of more" } else { "" };
    out::line(&format!(
        "would {} {count}{more} entries; apply with --confirm --expect {count}",
        word(plan.verb)
    ))?;
    print::entries(first)
}

#[derive(Debug, clap::Args)]
pub(crate) struct PauseArgs {
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    audit: ActorArgs,
    /// Handler key
    #[arg(long, value_name = "HANDLER", value_parser = handler)]
    handler: HandlerKey,
    /// Only this ordering key
    #[arg(long, value_name = "KEY")]
    ordering_key: Option<String>,
    /// Source of the messages with the ordering key
    #[arg(long, requires = "ordering_key")]
    source: Option<String>,
    /// Tenant of the messages with the ordering key
    #[arg(long, requires = "ordering_key")]
    tenant: Option<String>,
    /// Allow a handler that does not exist yet
    #[arg(long)]
    unknown: bool,
}

pub(super) async fn hold(args: &PauseArgs, pause: bool) -> Result<(), CommandError> {
    let line = args.ordering_key.as_deref().map(|key| wire::OrderingKeyRef {
        source: Some(args.source.as_deref().unwrap_or_default().into()),
        tenant: args.tenant.as_deref().map(Into::into),
        ordering_key: Some(key.into()),
        ordering_key_hex: None,
    });
    let hold = wire::PauseAction {
        operation: args.audit.id(),
        actor: args.audit.actor(),
        reason: args.audit.reason()?,
        handler: args.handler.as_str().into(),
        line,
        unknown: args.unknown,
    };
    let client = args.target.open().await?;
    let acted = client.hold(pause, &hold).await;
    report_action(&args.target, if pause { "pause" } else { "resume" }, hold.operation, acted)?;
    Ok(())
}

#[derive(Debug, clap::Args)]
pub(crate) struct PurgeArgs {
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    audit: ActorArgs,
    /// Minimum age in quarantine, like 30days
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    older_than: Duration,
    /// Maximum messages, 1 to 10,000
    #[arg(long, default_value_t = 1_000, value_parser = super::many)]
    limit: usize,
    /// Delete the messages (default: dry run)
    #[arg(long)]
    pub(super) confirm: bool,
    /// Refuse unless exactly this many messages match, as in the dry run
    #[arg(long, value_name = "COUNT", requires = "confirm")]
    expect: Option<u64>,
}

pub(super) async fn purge(args: &PurgeArgs) -> Result<(), CommandError> {
    let client = args.target.open().await?;
    let (older_than_seconds, limit) = (args.older_than.as_secs(), Some(args.limit as u64));
    let plan = wire::PurgePlan { older_than_seconds, limit };
    if !args.confirm {
        let progress = ProgressLine::unknown("counting");
        let count = client.purge_preview(&plan).await?.count;
        drop(progress);
        if args.target.json {
            return print::json(&json!({ "dry_run": true, "count": count }));
        }
        return out::line(&format!("would delete {count} messages; apply with --confirm --expect {count}"));
    }
    let expected = match args.expect {
        Some(expected) => expected,
        None => client.purge_preview(&plan).await?.count,
    };
    let purge = wire::PurgeAction {
        operation: args.audit.id(),
        actor: args.audit.actor(),
        reason: args.audit.reason()?,
        older_than_seconds,
        limit,
        expected,
    };
    let purged = report_action(&args.target, "purge", purge.operation, client.purge(&purge).await)?;
    if let (Some(count), false) = (purged.purged, args.target.json) {
        out::line(&format!("{count} messages deleted"))?;
    }
    Ok(())
}

#[derive(Debug, clap::Args)]
pub(crate) struct BackfillArgs {
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    audit: ActorArgs,
    /// Handler that gets entries
    #[arg(long, value_name = "HANDLER", value_parser = handler)]
    handler: HandlerKey,
    /// With --store: message type or pattern like order.*; repeatable
    #[arg(long = "type", value_name = "TYPE")]
    types: Vec<String>,
    /// With --store: former key of the handler; repeatable
    #[arg(long, value_name = "HANDLER", value_parser = handler)]
    legacy: Vec<HandlerKey>,
    /// With --store: maximum entries
    #[arg(long)]
    limit: Option<usize>,
    /// Add the entries (default: dry run)
    #[arg(long)]
    pub(super) confirm: bool,
}

pub(super) async fn backfill(args: &BackfillArgs) -> Result<(), CommandError> {
    let client = args.target.open().await?;
    let messages = client.counts(None).await?.messages;
    if !args.confirm {
        if args.target.json {
            return print::json(&json!({ "dry_run": true, "messages": messages }));
        }
        let handler = &args.handler;
        return out::line(&format!(
            "would check {messages} messages and add the missing entries for {handler}; apply with --confirm"
        ));
    }
    let action = wire::BackfillAction {
        operation: args.audit.id(),
        actor: args.audit.actor(),
        reason: args.audit.reason()?,
        handler: args.handler.as_str().into(),
    };
    let id = action.operation.0;
    out::eprint_note(&format!("operation {id}; continue with --operation {id}"));
    let types = args.types.iter().map(|kind| kind.as_str().into()).collect();
    let plan = BackfillPlan { action, types, legacy: args.legacy.clone(), limit: args.limit };
    let progress = ProgressLine::unknown("entries added");
    let ended = client.backfill(&plan, &mut |report| progress.at(report.done)).await;
    drop(progress);
    let report =
        ended.map_err(|failed| CommandError::from(failed).context(format!("backfill, operation {id}")))?;
    if args.target.json {
        return print::json(&report);
    }
    out::line(&format!("{}: {} entries added", report.state, report.done))
}
