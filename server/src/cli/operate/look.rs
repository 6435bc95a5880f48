//! Commands that change nothing.

use anyhow::anyhow;
use oncebox::state::Status as EntryStatus;
use oncebox::store::{Admin, AuditFilter, Cursor, ExamineParams, Severity};
use oncebox::time::{Clock as _, SystemClock};
use oncebox::{HandlerKey, Key};
use serde_json::json;

use super::place::{Failed, Message, Place, Which, handler};
use super::print::{self, printable};

#[derive(Debug, clap::Args)]
pub(crate) struct Status {
    #[command(flatten)]
    pub(super) place: Place,
    /// Of one tenant alone.
    #[arg(long)]
    tenant: Option<String>,
}

pub(super) async fn status(store: &dyn Admin, args: &Status) -> Result<(), Failed> {
    let counts = match &args.tenant {
        None => store.count(&args.place.inbox).await?,
        Some(tenant) => store.count_tenant(&args.place.inbox, tenant).await?,
    };
    if args.place.json {
        let one = |entry: &oncebox::store::HandlerCount| json!({ "handler": entry.handler.as_str(), "status": entry.status.as_str(), "count": entry.count });
        let keys: Vec<_> = counts
            .paused_keys
            .iter()
            .map(|key| json!({ "handler": key.handler.as_str(), "ordering_key": String::from_utf8_lossy(&key.line.ordering_key) }))
            .collect();
        let paused: Vec<&str> = counts.paused.iter().map(HandlerKey::as_str).collect();
        let entries: Vec<_> = counts.entries.iter().map(one).collect();
        let all = json!({ "messages": counts.messages, "unrouted": counts.unrouted, "conflicts": counts.conflicts,
            "stale": counts.stale, "entries": entries, "paused": paused, "paused_keys": keys });
        println!("{all}");
        return Ok(());
    }
    println!("{} messages, {} of them without a handler", counts.messages, counts.unrouted);
    println!("{} kept aside: {} in conflict, {} stale", counts.kept_aside, counts.conflicts, counts.stale);
    let mut handlers: Vec<&HandlerKey> = counts.entries.iter().map(|entry| &entry.handler).collect();
    handlers.dedup();
    let rows: Vec<Vec<String>> = handlers
        .into_iter()
        .map(|handler| {
            let of = |status: EntryStatus| {
                let found = counts.entries.iter().find(|one| one.handler == *handler && one.status == status);
                found.map_or(0, |one| one.count).to_string()
            };
            std::iter::once(handler.to_string()).chain(EntryStatus::ALL.map(of)).collect()
        })
        .collect();
    let head: Vec<&str> =
        std::iter::once("HANDLER").chain(EntryStatus::ALL.map(EntryStatus::as_str)).collect();
    print::table(&head, &rows);
    for handler in &counts.paused {
        println!("paused: {handler}");
    }
    for key in &counts.paused_keys {
        println!("paused: {} for the ordering key {}", key.handler, print::bytes(&key.line.ordering_key));
    }
    Ok(())
}

#[derive(Debug, clap::Args)]
pub(crate) struct List {
    #[command(flatten)]
    pub(super) place: Place,
    #[command(flatten)]
    which: Which,
    /// At most this many.
    #[arg(long, default_value_t = 100)]
    limit: usize,
    /// Go on where the last list ended: what it printed after `next`.
    #[arg(long, value_name = "CURSOR")]
    after: Option<String>,
}

pub(super) async fn list(store: &dyn Admin, args: &List) -> Result<(), Failed> {
    let mut filter = args.which.filter(&args.place);
    filter.after = args.after.as_deref().map(str::parse::<Cursor>).transpose().map_err(Failed::usage)?;
    let mut entries = Vec::new();
    // Pages may be short: a person wants as many as there are.
    loop {
        filter.limit = args.limit - entries.len();
        let page = store.list(&filter).await?;
        entries.extend(page.entries);
        filter.after = page.next;
        if filter.after.is_none() || entries.len() >= args.limit {
            break;
        }
    }
    let next = filter.after.map(|next| next.to_string());
    if args.place.json {
        for entry in &entries {
            println!("{}", print::entry(entry));
        }
        println!("{}", json!({ "next": next }));
        return Ok(());
    }
    print::entries(&entries);
    if let Some(next) = next {
        eprintln!("next: {next}");
    }
    Ok(())
}

#[derive(Debug, clap::Args)]
pub(crate) struct Explain {
    #[command(flatten)]
    pub(super) place: Place,
    #[command(flatten)]
    message: Message,
    /// The source of the message that `--id` names.
    #[arg(long)]
    source: Option<String>,
    /// The tenant of the message that `--id` names.
    #[arg(long)]
    tenant: Option<String>,
}

pub(super) async fn explain(store: &dyn Admin, args: &Explain) -> Result<(), Failed> {
    let key = args.message.find(&args.place, args.source.as_deref(), args.tenant.as_deref());
    let key: Key = key.ok_or_else(|| Failed::usage(anyhow!("name a message with --key or --id")))?;
    let Some(explained) = store.explain(&args.place.inbox, &key).await? else {
        return Err(Failed { code: 5, error: anyhow!("nothing is known of {key}") });
    };
    if !args.place.json {
        print!("{}", printable(&explained.to_string()));
        return Ok(());
    }
    let story: Vec<_> = explained
        .story()
        .into_iter()
        .map(|(at, what)| json!({ "at_ms": at.as_millis(), "what": what }))
        .collect();
    let entries: Vec<_> = explained
        .view
        .entries
        .iter()
        .zip(&explained.why)
        .map(|(entry, why)| json!({ "entry": print::entry(entry), "why": why.to_string() }))
        .collect();
    println!("{}", json!({ "key": key.to_string(), "story": story, "entries": entries }));
    Ok(())
}

#[derive(Debug, clap::Args)]
pub(crate) struct Audit {
    #[command(flatten)]
    pub(super) place: Place,
    #[command(flatten)]
    message: Message,
    /// Only what this one asked for.
    #[arg(long, value_name = "ACTOR")]
    by: Option<String>,
    /// At most this many.
    #[arg(long, default_value_t = 100)]
    limit: usize,
}

pub(super) async fn audit(store: &dyn Admin, args: &Audit) -> Result<(), Failed> {
    let mut filter = AuditFilter::new(args.place.inbox.clone());
    filter.key = args.message.find(&args.place, None, None);
    (filter.actor, filter.limit) = (args.by.as_deref().map(Into::into), args.limit);
    let operations = store.audit(&filter).await?.operations;
    if args.place.json {
        for one in &operations {
            println!("{}", print::operation(one));
        }
        return Ok(());
    }
    let rows: Vec<Vec<String>> = operations
        .iter()
        .map(|one| {
            let handler = one.handler.as_ref().map_or_else(String::new, ToString::to_string);
            let key = one.key.map_or_else(String::new, |key| key.to_string());
            let (actor, reason) = (print::bytes(one.actor.as_bytes()), print::bytes(one.reason.as_bytes()));
            vec![print::time(one.at), actor, one.verb.to_string(), handler, key, one.id.to_string(), reason]
        })
        .collect();
    print::table(&["AT", "ACTOR", "VERB", "HANDLER", "KEY", "OPERATION", "REASON"], &rows);
    Ok(())
}

#[derive(Debug, clap::Args)]
pub(crate) struct Doctor {
    #[command(flatten)]
    pub(super) place: Place,
    /// The handlers that run somewhere, to find what waits for others.
    #[arg(long, value_delimiter = ',', value_parser = handler)]
    handlers: Option<Vec<HandlerKey>>,
}

/// Says whether something dangerous was found.
pub(super) async fn doctor(store: &dyn Admin, args: &Doctor) -> Result<bool, Failed> {
    let mut params = ExamineParams::new(args.place.inbox.clone(), SystemClock::default().now());
    params.known.clone_from(&args.handlers);
    let findings = store.doctor(&params).await?;
    for finding in &findings {
        if args.place.json {
            let (severity, code) = (finding.severity.as_str(), finding.code);
            println!(
                "{}",
                json!({ "severity": severity, "code": code, "what": finding.what, "fix": finding.fix })
            );
        } else {
            println!("{}", printable(&finding.to_string()));
        }
    }
    if findings.is_empty() && !args.place.json {
        println!("all is well");
    }
    Ok(findings.iter().any(|finding| finding.severity >= Severity::Danger))
}
