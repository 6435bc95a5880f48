//! Commands that only read. Tests: `tests/operate/queries.rs`.

use std::time::{Duration, Instant};

use oncebox::state::Status as EntryStatus;
use oncebox::store::EntryCursor;
use serde_json::json;

use super::CommandError;
use super::print;
use super::target::{EntryFilterArgs, OneMessageArgs, TargetArgs};
use crate::cli::out::{self, Cell, escaped, table};
use crate::cli::progress::ProgressLine;
use crate::operator::wire;

/// Maximum items per page.
pub(super) const PAGE: usize = 1_000;

#[derive(Debug, clap::Args)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// Only messages of this tenant
    #[arg(long)]
    tenant: Option<String>,
}

pub(super) async fn status(args: &StatusArgs) -> Result<(), CommandError> {
    let counts = args.target.open().await?.counts(args.tenant.as_deref()).await?;
    if args.tenant.is_none() {
        print::note_if_empty(&args.target, &counts)?;
    }
    if args.target.json {
        return print::json(&counts);
    }
    let mut lines = vec![
        format!("{} messages, {} of them without a handler", counts.messages, counts.unrouted),
        format!(
            "{} quarantined: {} in conflict, {} stale",
            counts.quarantined, counts.conflicts, counts.stale
        ),
        by_handler(&counts).trim_end().to_owned(),
    ];
    lines.extend(counts.blocked.iter().map(|blocked| {
        let wire::BlockedCount { handler, ordering_keys, waiting, oldest_seconds } = blocked;
        let age = oldest_seconds.map_or_else(String::new, |age| {
            format!(", the oldest for {}", humantime::format_duration(Duration::from_secs(age)))
        });
        let handler = escaped(handler);
        format!("blocked: {waiting} entries of {handler} behind {ordering_keys} ordering keys{age}; see `oncebox blocked`")
    }));
    lines.extend(counts.paused.iter().map(|handler| format!("paused: {}", escaped(handler))));
    lines.extend(counts.paused_keys.iter().map(|key| {
        format!("paused: {} for the ordering key {}", escaped(&key.handler), escaped(&key.ordering_key))
    }));
    out::line(&lines.join("\n"))
}

fn by_handler(counts: &wire::InboxTotals) -> String {
    let mut handlers: Vec<&str> = counts.entries.iter().map(|entry| &*entry.handler).collect();
    handlers.dedup();
    let row = |handler: &str| {
        let of = |status: EntryStatus| {
            let found = counts.entries.iter().find(|one| one.handler == handler && one.status.0 == status);
            let count = found.map_or(0, |one| one.count);
            // A zero has no colour.
            if count == 0 { Cell::new("0") } else { Cell::coloured(count.to_string(), status) }
        };
        // These are also counted as pending, or as poisoned if they are parked.
        let blocked = counts.blocked.iter().find(|one| one.handler == handler).map_or(0, |one| one.waiting);
        let blocked = match blocked {
            0 => Cell::new("0"),
            some => Cell::coloured(some.to_string(), EntryStatus::Poisoned),
        };
        std::iter::once(Cell::new(handler)).chain(EntryStatus::ALL.map(of)).chain([blocked]).collect()
    };
    let rows: Vec<Vec<Cell>> = handlers.into_iter().map(row).collect();
    let head: Vec<&str> = std::iter::once("HANDLER")
        .chain(EntryStatus::ALL.map(EntryStatus::as_str))
        .chain(["BLOCKED"])
        .collect();
    table(&head, &rows, out::colours())
}

#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    which: EntryFilterArgs,
    /// Maximum entries, 1 to 10,000
    #[arg(long, default_value_t = 100, value_parser = super::many)]
    limit: usize,
    /// Continue after the previous page, with the value it printed as `next`
    #[arg(long, value_name = "CURSOR", value_parser = cursor)]
    after: Option<String>,
    /// Stop searching after this time, and print the entries found so far
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = humantime::parse_duration)]
    search: Duration,
}

fn cursor(text: &str) -> Result<String, String> {
    text.parse::<EntryCursor>().map(|_| text.to_owned()).map_err(|error| error.what().to_owned())
}

pub(super) async fn list(args: &ListArgs) -> Result<(), CommandError> {
    let client = args.target.open().await?;
    let progress = ProgressLine::unknown("entries");
    let mut next = args.after.clone();
    let mut entries = Vec::new();
    let (start, mut stopped) = (Instant::now(), false);
    // Reads on until the limit, because pages may be short. A filter that matches little reads everything.
    loop {
        let query = args.which.query(next.as_deref(), PAGE.min(args.limit - entries.len()));
        let page = client.entries(&query).await?;
        progress.add(page.entries.len());
        entries.extend(page.entries);
        next = page.next;
        if next.is_none() || entries.len() >= args.limit {
            break;
        }
        if start.elapsed() >= args.search {
            stopped = true;
            break;
        }
    }
    drop(progress);
    if stopped {
        out::eprint_note(&format!(
            "stopped after {}, before the end of the inbox; narrow the search with --status, --handler, --since or --before, raise \
             --search, or continue with --after",
            humantime::format_duration(args.search)
        ));
    }
    if args.target.json {
        entries.iter().try_for_each(print::json)?;
        return print::json(&json!({ "next": next }));
    }
    print::entries(&entries)?;
    if let Some(next) = next {
        out::eprint_note(&format!("next: {next}"));
    }
    Ok(())
}

#[derive(Debug, clap::Args)]
pub(crate) struct ShowArgs {
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    message: OneMessageArgs,
    /// Show payloads and headers
    #[arg(long)]
    payload: bool,
}

pub(super) async fn show(args: &ShowArgs) -> Result<(), CommandError> {
    let client = args.target.open().await?;
    let key = args.message.key_to_read(&args.target, &*client).await?;
    let view = client.message(&key).await.map_err(|failed| args.message.not_found(failed))?;
    let payloads = if args.payload { Some(client.payloads(&key).await?) } else { None };
    if args.target.json {
        let mut value = serde_json::to_value(&view).unwrap_or_default();
        if let (Some(payloads), Some(fields)) = (&payloads, value.as_object_mut()) {
            fields.insert("payloads".into(), serde_json::to_value(payloads).unwrap_or_default());
        }
        return print::json(&value);
    }
    out::print(&message(&view, payloads.as_ref()))?;
    print::entries(&view.entries)?;
    if view.attempts.is_empty() {
        return Ok(());
    }
    let row = |attempt: &wire::FailedAttempt| {
        vec![
            Cell::new(attempt.at.to_string()),
            Cell::new(&attempt.handler),
            Cell::new(attempt.generation.to_string()),
            Cell::new(&attempt.event),
            Cell::new(attempt.attempts.to_string()),
            Cell::new(attempt.crashes.to_string()),
            Cell::new(&attempt.claim),
            Cell::new(attempt.error.as_deref().unwrap_or_default()),
        ]
    };
    let rows: Vec<_> = view.attempts.iter().map(row).collect();
    let head = ["FAILED AT", "HANDLER", "GENERATION", "EVENT", "ATTEMPTS", "CRASHES", "CLAIM", "ERROR"];
    out::print(&format!("\n{}", table(&head, &rows, out::colours())))
}

/// Formats the message itself.
fn message(view: &wire::MessageDetails, payloads: Option<&wire::MessagePayloads>) -> String {
    let mut lines = vec![format!("key           {}", view.key.0)];
    let mut line = |name: &str, value: &str| lines.push(format!("{name:<13} {}", escaped(value)));
    if let Some(tenant) = &view.tenant {
        line("tenant", tenant);
    }
    match &view.stored {
        None if view.erased => line("stored", "no: content erased, key remembered"),
        None => line("stored", "no: deleted by retention, or only quarantined"),
        Some(stored) => {
            describe(stored, &mut line);
            line("duplicates", &format!("at least {}", view.duplicates));
            if let Some(body) = payloads.and_then(|payloads| payloads.stored.as_ref()) {
                unfold(body, &mut line);
            }
        }
    }
    for (at, item) in view.quarantined.iter().enumerate() {
        let why = match item.quarantine_reason {
            Some(wire::QuarantineReasonWord::Stale) => "stale",
            _ => "conflict",
        };
        line("quarantined", why);
        describe(item, &mut line);
        if let Some(body) = payloads.and_then(|payloads| payloads.quarantined.get(at)) {
            unfold(body, &mut line);
        }
    }
    lines.join("\n") + "\n\n"
}

fn describe(stored: &wire::MessageSummary, line: &mut impl FnMut(&str, &str)) {
    if let Some(seq) = stored.seq {
        line("seq", &seq.to_string());
    }
    line("source", &stored.message.source);
    line("id", &stored.message.id);
    if let Some(hex) = &stored.message.id_hex {
        line("id in hex", hex);
    }
    line("type", &stored.message.message_type);
    if let Some(key) = &stored.message.ordering_key {
        line("ordering key", key);
    }
    if let Some(time) = stored.time {
        line("time", &time.to_string());
    }
    line("received at", &stored.received_at.to_string());
    line("payload", &format!("{} bytes", stored.payload_bytes));
}

fn unfold(body: &wire::PayloadView, line: &mut impl FnMut(&str, &str)) {
    for header in &body.headers {
        line("header", &format!("{}: {}", header.name, header.value));
    }
    match (&body.text, &body.hidden) {
        (Some(text), _) => line("payload text", text),
        (None, Some(why)) => line("payload text", &format!("hidden: {why}")),
        (None, None) => {}
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct ExplainArgs {
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    message: OneMessageArgs,
}

pub(super) async fn explain(args: &ExplainArgs) -> Result<(), CommandError> {
    let client = args.target.open().await?;
    let key = args.message.key_to_read(&args.target, &*client).await?;
    let explained = client.explain(&key).await;
    let explained = explained.map_err(|failed| args.message.not_found(failed))?;
    if args.target.json {
        return print::json(&explained);
    }
    // Escaped to one line each: an error cannot imitate an event.
    let mut lines = vec![key.to_string()];
    let event = |line: &wire::StoryEvent| format!("  {} {}", line.at, escaped(&line.what));
    lines.extend(explained.story.iter().map(event));
    for wire::ExplainedEntry { entry, why } in &explained.entries {
        let status = out::Colour::from(entry.status.0).paint(entry.status.0.as_str(), out::colours());
        let (handler, why) = (escaped(&entry.handler), escaped(why));
        lines.push(format!("  {handler} (generation {}) is {status}: {why}", entry.generation));
    }
    out::line(&lines.join("\n"))
}

#[derive(Debug, clap::Args)]
pub(crate) struct AuditArgs {
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    message: OneMessageArgs,
    /// Only actions of this actor
    #[arg(long, value_name = "ACTOR")]
    by: Option<String>,
    /// Only actions with this token name
    #[arg(long, value_name = "NAME")]
    by_token: Option<String>,
    /// Only the parts of this bulk operation
    #[arg(long, value_name = "UUID")]
    parts_of: Option<oncebox::store::OperationId>,
    /// Maximum actions, 1 to 10,000
    #[arg(long, default_value_t = 100, value_parser = super::many)]
    limit: usize,
    /// Continue after the previous page, with the value it printed as `next`
    #[arg(long, value_name = "NUMBER")]
    after: Option<i64>,
}

pub(super) async fn audit(args: &AuditArgs) -> Result<(), CommandError> {
    let mut query = wire::AuditQuery {
        parent: args.parts_of.map(wire::OperationUuid),
        key: args.message.find(&args.target)?.map(wire::KeyText),
        actor: args.by.as_deref().map(Into::into),
        token: args.by_token.as_deref().map(Into::into),
        before: args.after,
        limit: None,
    };
    let client = args.target.open().await?;
    let mut operations = Vec::new();
    loop {
        query.limit = Some(PAGE.min(args.limit - operations.len()) as u64);
        let page = client.audit(&query).await?;
        operations.extend(page.operations);
        query.before = page.next;
        if query.before.is_none() || operations.len() >= args.limit {
            break;
        }
    }
    if args.target.json {
        operations.iter().try_for_each(print::json)?;
        return print::json(&json!({ "next": query.before }));
    }
    let row = |one: &wire::OperationRecord| {
        vec![
            Cell::new(one.at.to_string()),
            Cell::new(&one.actor),
            Cell::new(one.token.as_deref().unwrap_or_default()),
            Cell::new(&one.verb),
            Cell::new(one.handler.as_deref().unwrap_or_default()),
            Cell::new(one.key.map_or_else(String::new, |key| key.0.to_string())),
            Cell::new(one.id.0.to_string()),
            Cell::new(&one.reason),
        ]
    };
    let rows: Vec<_> = operations.iter().map(row).collect();
    let head = ["AT", "ACTOR", "TOKEN", "VERB", "HANDLER", "KEY", "OPERATION", "REASON"];
    out::print(&table(&head, &rows, out::colours()))?;
    if let Some(next) = query.before {
        out::eprint_note(&format!("next: {next}"));
    }
    Ok(())
}
