//! Commands that change something. Each is recorded with who asked for it and why.

use std::time::Duration;

use oncebox::HandlerKey;
use serde_json::json;

use super::CommandError;
use super::client::{BackfillPlan, OperatorClient};
use super::print;
use super::target::{ActorArgs, EntryFilterArgs, MessageArgs, TargetArgs, handler, not_found, usage};
use crate::api::wire;
use crate::cli::out;
use crate::cli::progress::ProgressLine;

/// Tells what was done; an error says under which identity, so that it can be asked for again.
pub(super) fn tell(
    place: &TargetArgs,
    verb: &str,
    id: wire::OperationUuid,
    acted: Result<wire::ActionResponse, CommandError>,
) -> Result<wire::ActionResponse, CommandError> {
    let acted = acted.map_err(|failed| failed.context(format!("{verb}, operation {}", id.0)))?;
    if place.json {
        print::json(&acted)?;
    } else {
        let again = match (acted.repeated, acted.changed) {
            (true, _) => "was done before",
            (false, Some(false)) => "changed nothing",
            _ => "done",
        };
        let legacy = match &acted.legacy[..] {
            [] => String::new(),
            former => format!(", also under its former {}", former.join(", ")),
        };
        out::line(&format!("{verb} {again}{legacy} (operation {})", id.0))?;
        if let Some(entry) = &acted.entry {
            print::entries(std::slice::from_ref(entry))?;
        }
    }
    Ok(acted)
}

#[derive(Debug, clap::Args)]
pub(crate) struct EntryActionArgs {
    #[command(flatten)]
    place: TargetArgs,
    #[command(flatten)]
    who: ActorArgs,
    #[command(flatten)]
    message: MessageArgs,
    #[command(flatten)]
    which: EntryFilterArgs,
    /// Really does it to all that the filter takes, instead of showing what it would be done to.
    #[arg(long)]
    confirm: bool,
    /// With `--confirm`: do it only if so many entries would be done, as was shown before.
    #[arg(long, value_name = "COUNT", requires = "confirm")]
    expect: Option<u64>,
    /// With a filter: do it to this many at most, 1 to 100,000.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    limit: u64,
    /// With a filter: so many a second, once it is at full speed, 1 to 1,000.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    per_second: u64,
    /// With a filter: stop when more than this many are poisoned again.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(0..=100_000))]
    failures: u64,
    /// Carry on an operation that was stopped by failures.
    #[arg(long)]
    go_on: bool,
    /// Allow a filter that takes everything.
    #[arg(long)]
    everything: bool,
}

/// The word for it.
pub(super) const fn word(verb: wire::EntryVerb) -> &'static str {
    match verb {
        wire::EntryVerb::Retry => "retry",
        wire::EntryVerb::Discard => "discard",
        wire::EntryVerb::Replay => "replay",
        wire::EntryVerb::Unblock => "unblock",
    }
}

/// Says whether it was stopped.
pub(super) async fn entries(args: &EntryActionArgs, verb: wire::EntryVerb) -> Result<bool, CommandError> {
    let (source, tenant) = (args.which.source.as_deref(), args.which.tenant.as_deref());
    let Some(key) = args.message.find(&args.place, source, tenant)? else { return many(args, verb).await };
    // Whoever names one entry and a filter means something else than either.
    if args.which.asks_for_many() || args.confirm || args.everything || args.go_on {
        return Err(usage(
            "--key and --id name one entry: leave the filter, --confirm, --everything and --go-on out",
        ));
    }
    let named = args.which.handler.as_ref();
    let named = named.ok_or_else(|| usage("name the handler of the entry with --handler"))?;
    let action = wire::EntryAction {
        operation: args.who.id(),
        actor: args.who.actor(),
        reason: args.who.reason()?,
        handler: named.as_str().into(),
    };
    let acted = args.place.open().await?.act(verb, &key, &action).await;
    let acted = acted.map_err(|failed| not_found(failed, &args.message, source));
    tell(&args.place, word(verb), action.operation, acted).map(|_| false)
}

async fn many(args: &EntryActionArgs, verb: wire::EntryVerb) -> Result<bool, CommandError> {
    let plan = wire::BulkPlan {
        verb,
        which: args.which.wire(),
        limit: Some(args.limit),
        everything: args.everything,
    };
    let client = args.place.open().await?;
    if !args.confirm {
        return preview(&*client, args, &plan).await.map(|()| false);
    }
    let expected = match args.expect {
        Some(expected) => expected,
        None => client.preview(&plan).await?.count,
    };
    let wire::BulkPlan { verb, which, limit, everything } = plan;
    let action = wire::BulkAction {
        operation: args.who.id(),
        actor: args.who.actor(),
        reason: args.who.reason()?,
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
    // Before it begins: whoever kills it carries it on by this.
    out::eprint_note(&format!("operation {id}; {expected} entries; carry it on with --operation {id}"));
    let progress = ProgressLine::of(expected, "entries");
    let mut told = |report: &wire::OperationReport| {
        progress.at(report.done);
        progress.say(format!("done, {} had changed, {} failed again", report.refused, report.failed));
    };
    let ended = client.bulk(&action, &mut told).await;
    drop(progress);
    let report = ended.map_err(|failed| failed.context(format!("{} of many, operation {id}", word(verb))))?;
    tell_report(&args.place, &report)?;
    Ok(report.state == "stopped")
}

fn tell_report(place: &TargetArgs, report: &wire::OperationReport) -> Result<(), CommandError> {
    if place.json {
        return print::json(report);
    }
    let wire::OperationReport { state, done, refused, failed, .. } = report;
    out::line(&format!("{state}: {done} done, {refused} had changed, {failed} failed again"))?;
    match state.as_str() {
        "stopped" => out::eprint_note("look at what failed; the same --operation with --go-on carries it on"),
        "capped" => out::eprint_note("there are more; a new operation does the next, or raise --limit"),
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
    if args.place.json {
        return print::json(&json!({ "dry_run": true, "count": count, "more": more, "first": first }));
    }
    let more = if *more { " of more" } else { "" };
    out::line(&format!(
        "would {} {count}{more} entries; --confirm --expect {count} does it",
        word(plan.verb)
    ))?;
    print::entries(first)
}

#[derive(Debug, clap::Args)]
pub(crate) struct PauseArgs {
    #[command(flatten)]
    place: TargetArgs,
    #[command(flatten)]
    who: ActorArgs,
    /// The handler.
    #[arg(long, value_name = "HANDLER", value_parser = handler)]
    handler: HandlerKey,
    /// Only this ordering key of it.
    #[arg(long, value_name = "KEY")]
    ordering_key: Option<String>,
    /// The source of the messages with the ordering key.
    #[arg(long, requires = "ordering_key")]
    source: Option<String>,
    /// Their tenant.
    #[arg(long, requires = "ordering_key")]
    tenant: Option<String>,
    /// Allow a handler that nobody knows: one that is yet to come.
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
        operation: args.who.id(),
        actor: args.who.actor(),
        reason: args.who.reason()?,
        handler: args.handler.as_str().into(),
        line,
        unknown: args.unknown,
    };
    let client = args.place.open().await?;
    let acted = client.hold(pause, &hold).await;
    tell(&args.place, if pause { "pause" } else { "resume" }, hold.operation, acted)?;
    Ok(())
}

#[derive(Debug, clap::Args)]
pub(crate) struct PurgeArgs {
    #[command(flatten)]
    place: TargetArgs,
    #[command(flatten)]
    who: ActorArgs,
    /// Only what was quarantined for longer than this, as in `30days`.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    older_than: Duration,
    /// At most this many: 1 to 10,000.
    #[arg(long, default_value_t = 1_000, value_parser = super::many)]
    limit: usize,
    /// Really removes them.
    #[arg(long)]
    confirm: bool,
    /// With `--confirm`: do it only if so many messages would be removed, as was shown before.
    #[arg(long, value_name = "COUNT", requires = "confirm")]
    expect: Option<u64>,
}

pub(super) async fn purge(args: &PurgeArgs) -> Result<(), CommandError> {
    let client = args.place.open().await?;
    let (older_than_seconds, limit) = (args.older_than.as_secs(), Some(args.limit as u64));
    let plan = wire::PurgePlan { older_than_seconds, limit };
    if !args.confirm {
        let progress = ProgressLine::unknown("counting");
        let count = client.purge_preview(&plan).await?.count;
        drop(progress);
        if args.place.json {
            return print::json(&json!({ "dry_run": true, "count": count }));
        }
        return out::line(&format!("would remove {count} messages; --confirm --expect {count} does it"));
    }
    let expected = match args.expect {
        Some(expected) => expected,
        None => client.purge_preview(&plan).await?.count,
    };
    let purge = wire::PurgeAction {
        operation: args.who.id(),
        actor: args.who.actor(),
        reason: args.who.reason()?,
        older_than_seconds,
        limit,
        expected,
    };
    let purged = tell(&args.place, "purge", purge.operation, client.purge(&purge).await)?;
    if let (Some(count), false) = (purged.purged, args.place.json) {
        out::line(&format!("{count} messages removed"))?;
    }
    Ok(())
}

#[derive(Debug, clap::Args)]
pub(crate) struct BackfillArgs {
    #[command(flatten)]
    place: TargetArgs,
    #[command(flatten)]
    who: ActorArgs,
    /// The handler that gets entries.
    #[arg(long, value_name = "HANDLER", value_parser = handler)]
    handler: HandlerKey,
    /// On a store: the types of messages it takes, or patterns of them like `order.*`; can be given several times. A
    /// configuration or a process that serves knows them.
    #[arg(long = "type", value_name = "TYPE")]
    types: Vec<String>,
    /// On a store: a key that the handler had before; can be given several times.
    #[arg(long, value_name = "HANDLER", value_parser = handler)]
    legacy: Vec<HandlerKey>,
    /// On a store: at most this many entries.
    #[arg(long)]
    limit: Option<usize>,
    /// Really does it, instead of saying how many messages would be looked at.
    #[arg(long)]
    confirm: bool,
}

pub(super) async fn backfill(args: &BackfillArgs) -> Result<(), CommandError> {
    let client = args.place.open().await?;
    let messages = client.counts(None).await?.messages;
    if !args.confirm {
        if args.place.json {
            return print::json(&json!({ "dry_run": true, "messages": messages }));
        }
        let handler = &args.handler;
        return out::line(&format!(
            "would look at {messages} messages, and give {handler} those of its types that it has not had; --confirm does it"
        ));
    }
    let action = wire::BackfillAction {
        operation: args.who.id(),
        actor: args.who.actor(),
        reason: args.who.reason()?,
        handler: args.handler.as_str().into(),
    };
    let id = action.operation.0;
    out::eprint_note(&format!("operation {id}; carry it on with --operation {id}"));
    let types = args.types.iter().map(|kind| kind.as_str().into()).collect();
    let late = BackfillPlan { action, types, legacy: args.legacy.clone(), limit: args.limit };
    let progress = ProgressLine::unknown("entries added");
    let ended = client.backfill(&late, &mut |report| progress.at(report.done)).await;
    drop(progress);
    let report = ended.map_err(|failed| failed.context(format!("backfill, operation {id}")))?;
    if args.place.json {
        return print::json(&report);
    }
    out::line(&format!("{}: {} entries added", report.state, report.done))
}
