//! Commands that change something. Each is recorded with who asked for it and why.

use std::time::Duration;

use anyhow::anyhow;
use oncebox::HandlerKey;
use oncebox::operate::{Bulk, State};
use oncebox::state::Operation;
use oncebox::store::{Action, Admin, Answer, AsideFilter, Line, OperationId, What};
use oncebox::time::{Clock as _, SystemClock};
use serde_json::json;

use super::place::{Failed, Message, Place, Which, handler, opened};
use super::print;

/// Who asks, and why.
#[derive(Debug, clap::Args)]
struct Who {
    /// Who asks for it; recorded.
    #[arg(long)]
    actor: String,
    /// Why; recorded.
    #[arg(long, default_value = "")]
    reason: String,
    /// The identity of the operation, a UUID: the same again is done once. Default: a new one, which is printed.
    #[arg(long, value_name = "UUID")]
    operation: Option<OperationId>,
}

impl Who {
    fn action(&self, place: &Place, what: What) -> Action {
        let id = self.operation.unwrap_or_else(OperationId::fresh);
        Action::new(place.inbox.clone(), what).id(id).by(&self.actor, &self.reason)
    }
}

/// Does an action and tells of it.
async fn act(store: &dyn Admin, place: &Place, action: &Action) -> Result<Answer, Failed> {
    let acted = store.act(action).await?;
    let (id, repeated) = (action.id.to_string(), acted.repeated);
    if place.json {
        println!("{}", json!({ "operation": id, "repeated": repeated, "answer": answer(&acted.answer) }));
    } else {
        let again = if repeated { "was done before" } else { "done" };
        println!("{} {again} (operation {id})", action.what.verb());
        if let Some(entry) = acted.answer.entry() {
            print::entries(std::slice::from_ref(entry));
        }
    }
    Ok(acted.answer)
}

fn answer(answer: &Answer) -> serde_json::Value {
    serde_json::from_str(&answer.encode()).unwrap_or_default()
}

#[derive(Debug, clap::Args)]
pub(crate) struct Entries {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    who: Who,
    #[command(flatten)]
    message: Message,
    /// The handler of the one entry that `--key` or `--id` names.
    #[arg(long, value_name = "HANDLER", value_parser = handler)]
    of: Option<HandlerKey>,
    #[command(flatten)]
    which: Which,
    /// Really does it to all that the filter takes, instead of showing what it would be done to.
    #[arg(long)]
    confirm: bool,
    /// With a filter: do it to this many at most.
    #[arg(long, default_value_t = 1_000)]
    most: usize,
    /// With a filter: so many a second, once it is at full speed.
    #[arg(long, default_value_t = 50)]
    per_second: usize,
    /// With a filter: stop when more than this many are poisoned again.
    #[arg(long, default_value_t = 10)]
    failures: usize,
    /// Carry on an operation that was stopped by failures.
    #[arg(long)]
    go_on: bool,
    /// Allow a filter that takes everything.
    #[arg(long)]
    everything: bool,
}

/// Says whether it was stopped.
pub(super) async fn entries(args: &Entries, operation: Operation) -> Result<bool, Failed> {
    let store = opened(&args.place).await?;
    let named = args.message.find(&args.place, args.which.source.as_deref(), args.which.tenant.as_deref());
    let Some(key) = named else { return many(&*store, args, operation).await };
    let of = args.of.clone();
    let handler = of.ok_or_else(|| Failed::usage(anyhow!("name the handler of the entry with --of")))?;
    let action = args.who.action(&args.place, What::Entry { key, handler, operation });
    act(&*store, &args.place, &action).await.map(|_| false)
}

async fn many(store: &dyn Admin, args: &Entries, operation: Operation) -> Result<bool, Failed> {
    let filter = args.which.filter(&args.place);
    let bulk =
        if args.everything { Bulk::on_everything(operation, filter) } else { Bulk::new(operation, filter)? };
    let mut bulk = bulk.by(&args.who.actor, &args.who.reason);
    bulk.id = args.who.operation.unwrap_or(bulk.id);
    (bulk.most, bulk.per_second) = (args.most, args.per_second);
    (bulk.failures, bulk.go_on) = (args.failures, args.go_on);
    if !args.confirm {
        let preview = bulk.preview(store).await?;
        if args.place.json {
            println!("{}", json!({ "dry_run": true, "count": preview.count, "more": preview.more }));
        } else {
            let more = if preview.more { " of more" } else { "" };
            println!("would {} {}{more} entries; --confirm does it", operation.as_str(), preview.count);
            print::entries(&preview.first);
        }
        return Ok(false);
    }
    eprintln!("operation {}", bulk.id);
    let report = bulk.run(store, &SystemClock::shared()).await?;
    let (id, state) = (report.id.to_string(), report.state.as_str());
    if args.place.json {
        let told = json!({ "operation": id, "state": state, "done": report.done, "refused": report.refused,
            "failed": report.failed });
        println!("{told}");
    } else {
        println!(
            "{state}: {} done, {} had changed, {} failed again",
            report.done, report.refused, report.failed
        );
    }
    Ok(report.state == State::Stopped)
}

#[derive(Debug, clap::Args)]
pub(crate) struct Hold {
    #[command(flatten)]
    pub(super) place: Place,
    #[command(flatten)]
    who: Who,
    /// The handler.
    #[arg(long, value_name = "HANDLER", value_parser = handler)]
    of: HandlerKey,
    /// Only this ordering key of it.
    #[arg(long, value_name = "KEY")]
    ordering_key: Option<String>,
    /// The source of the messages with the ordering key.
    #[arg(long, requires = "ordering_key", default_value = "")]
    source: String,
    /// Their tenant.
    #[arg(long, requires = "ordering_key")]
    tenant: Option<String>,
}

pub(super) async fn hold(store: &dyn Admin, args: &Hold, pause: bool) -> Result<(), Failed> {
    let handler = args.of.clone();
    let what = match &args.ordering_key {
        None if pause => What::Pause { handler },
        None => What::Resume { handler },
        Some(key) => {
            let mut line = Line::new(&*args.source, key.as_bytes());
            line.tenant = args.tenant.as_deref().map(Into::into);
            if pause { What::PauseKey { handler, line } } else { What::ResumeKey { handler, line } }
        }
    };
    act(store, &args.place, &args.who.action(&args.place, what)).await.map(|_| ())
}

#[derive(Debug, clap::Args)]
pub(crate) struct Purge {
    #[command(flatten)]
    pub(super) place: Place,
    #[command(flatten)]
    who: Who,
    /// Only what was kept aside for longer than this, as in `30days`.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    older_than: Duration,
    /// At most this many.
    #[arg(long, default_value_t = 1_000)]
    limit: usize,
    /// Really removes them.
    #[arg(long)]
    confirm: bool,
}

pub(super) async fn purge(store: &dyn Admin, args: &Purge) -> Result<(), Failed> {
    if args.confirm {
        let what = What::Purge { age: args.older_than, limit: args.limit };
        let purged = act(store, &args.place, &args.who.action(&args.place, what)).await?;
        if let (Answer::Purged(count), false) = (purged, args.place.json) {
            println!("{count} messages removed");
        }
        return Ok(());
    }
    let until = SystemClock::default().now().before(args.older_than);
    let mut filter = AsideFilter::new(args.place.inbox.clone());
    let mut count = 0;
    loop {
        let page = store.aside(&filter).await?;
        count += page.asides.iter().filter(|aside| aside.received_at <= until).count();
        filter.after = page.next;
        if filter.after.is_none() || count >= args.limit {
            break;
        }
    }
    let count = count.min(args.limit);
    if args.place.json {
        println!("{}", json!({ "dry_run": true, "count": count }));
    } else {
        println!("would remove {count} messages; --confirm does it");
    }
    Ok(())
}
