//! The commands of an operator, on a store or through the API: what is stuck, why, and what to do about it.

mod actions;
mod api_client;
mod client;
mod doctor;
mod erase;
mod print;
mod queries;
mod store_client;
mod stuck;
mod target;

use std::process::ExitCode;

use clap::Subcommand;

use super::{CommandError, EXITS, Exit, checked};
use crate::api::wire::EntryVerb;

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// How much of everything there is, and what is paused.
    #[command(after_help = format!(
        "Examples:\n  oncebox status --store sqlite:inbox.db --inbox orders\n  \
         oncebox status --api https://inbox.example:8472 --inbox orders --json\n\n{EXITS}"
    ))]
    Status(queries::StatusArgs),
    /// Lists entries, the oldest message first.
    #[command(after_help = format!(
        "Example:\n  oncebox list --store sqlite:inbox.db --inbox orders --status poisoned --error 'refused'\n\n{EXITS}"
    ))]
    List(queries::ListArgs),
    /// One message with all its entries and failed attempts; its payload only with `--payload`.
    #[command(after_help = format!(
        "Example:\n  oncebox show --store sqlite:inbox.db --inbox orders --id evt_1 --source shop --payload\n\n{EXITS}"
    ))]
    Show(queries::ShowArgs),
    /// What happened to one message, and why it is where it is.
    #[command(after_help = format!(
        "Example:\n  oncebox explain --store sqlite:inbox.db --inbox orders --id evt_1 --source shop\n\n{EXITS}"
    ))]
    Explain(queries::ExplainArgs),
    /// Messages that were quarantined, the first kept first: the same key with another payload, or too old to know.
    #[command(after_help = format!(
        "Example:\n  oncebox quarantine --store sqlite:inbox.db --inbox orders --reason conflict\n\n{EXITS}"
    ))]
    Quarantine(stuck::QuarantineArgs),
    /// Ordering keys that a poisoned entry holds back, those with the oldest message in front first.
    ///
    /// `retry`, `discard` or `unblock` the entry in front, by the key that is shown, to let the others go on.
    #[command(after_help = format!("Example:\n  oncebox blocked --store sqlite:inbox.db --inbox orders\n\n{EXITS}"))]
    Blocked(stuck::BlockedArgs),
    /// What operators did, the latest first.
    #[command(after_help = format!("Example:\n  oncebox audit --store sqlite:inbox.db --inbox orders --by ada\n\n{EXITS}"))]
    Audit(queries::AuditArgs),
    /// What endangers the inbox or its store.
    ///
    /// Looks at the tables and their indexes, at settings that lose what was acknowledged, at clocks, at how long keys are
    /// remembered, at dead rows and transactions that never end, and at what waits for a handler that nobody runs, or for a
    /// person. Exits with 1 if something is dangerous.
    #[command(after_help = format!(
        "Examples:\n  oncebox doctor --config oncebox.toml\n  \
         oncebox doctor --store sqlite:inbox.db --inbox orders --handlers ship-order,bill --redelivery 3days\n\n{EXITS}"
    ))]
    Doctor(doctor::DoctorArgs),
    /// Tries poisoned entries again: one by its message, or all that a filter takes.
    #[command(after_help = format!(
        "Examples:\n  oncebox retry --store sqlite:inbox.db --inbox orders --actor ada --reason 'depot is back' --id evt_1 \
         --source shop --handler ship-order\n  \
         oncebox retry --store sqlite:inbox.db --inbox orders --actor ada --reason 'depot is back' --error refused --confirm\
         \n\n{EXITS}"
    ))]
    Retry(actions::EntryActionArgs),
    /// Gives entries up: one by its message, or all that a filter takes.
    #[command(after_help = format!(
        "Example:\n  oncebox discard --store sqlite:inbox.db --inbox orders --actor ada --reason 'test orders' --type order.test\
         \n\n{EXITS}"
    ))]
    Discard(actions::EntryActionArgs),
    /// Runs finished entries again, as a new generation.
    #[command(after_help = format!(
        "Example:\n  oncebox replay --store sqlite:inbox.db --inbox orders --actor ada --reason 'labels were blank' --handler \
         ship-order --since 2026-01-31T12:00:00Z\n\n{EXITS}"
    ))]
    Replay(actions::EntryActionArgs),
    /// Lets those behind a poisoned entry with its ordering key go on without it.
    #[command(after_help = format!(
        "Example:\n  oncebox unblock --store sqlite:inbox.db --inbox orders --actor ada --reason 'order was cancelled' --id evt_1 \
         --source shop --handler ship-order\n\n{EXITS}"
    ))]
    Unblock(actions::EntryActionArgs),
    /// Stops claims for a handler, or for one of its ordering keys, on every worker.
    #[command(after_help = format!(
        "Example:\n  oncebox pause --store sqlite:inbox.db --inbox orders --actor ada --reason 'depot is down' --handler ship-order\
         \n\n{EXITS}"
    ))]
    Pause(actions::PauseArgs),
    /// Allows claims again.
    #[command(after_help = format!(
        "Example:\n  oncebox resume --store sqlite:inbox.db --inbox orders --actor ada --reason 'depot is back' --handler ship-order\
         \n\n{EXITS}"
    ))]
    Resume(actions::PauseArgs),
    /// Removes messages that were quarantined; says how many there are unless `--confirm` is given.
    #[command(after_help = format!(
        "Example:\n  oncebox purge --store sqlite:inbox.db --inbox orders --actor ada --reason 'settled with the shop' \
         --older-than 30days --confirm\n\n{EXITS}"
    ))]
    Purge(actions::PurgeArgs),
    /// Erase the content of one message for good, as for a privacy request
    ///
    /// Removes payloads, headers, ids, errors and results, and what was quarantined under the key. The key itself stays as a digest, so
    /// that the same message is still a duplicate. Shows what would be erased unless `--confirm` is given.
    #[command(after_help = format!(
        "Examples:\n  oncebox erase --store sqlite:inbox.db --inbox orders --reason 'request 17' --id evt_1 --source shop\n  \
         oncebox erase --store sqlite:inbox.db --inbox orders --actor ada --reason 'request 17' --id evt_1 --source shop \
         --discard-unfinished --confirm\n\n{EXITS}"
    ))]
    Erase(erase::ErasureArgs),
    /// Gives a handler that was added later the messages that were stored before.
    ///
    /// Messages that it has had, under its key or a former one, are passed over, so it can be run again.
    #[command(after_help = format!(
        "Example:\n  oncebox backfill --store sqlite:inbox.db --inbox orders --actor ada --reason 'receipts are new' --handler \
         send-receipt --type 'order.*' --confirm\n\n{EXITS}"
    ))]
    Backfill(actions::BackfillArgs),
}

/// Runs a command to its end.
pub(crate) fn run(command: &Command) -> Result<ExitCode, CommandError> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.map_err(|error| Exit::Start.with(error))?.block_on(dispatch(command)).map(checked)
}

/// Says whether a check found something wrong.
async fn dispatch(command: &Command) -> Result<bool, CommandError> {
    let done = |()| false;
    match command {
        Command::Status(args) => queries::status(args).await.map(done),
        Command::List(args) => queries::list(args).await.map(done),
        Command::Show(args) => queries::show(args).await.map(done),
        Command::Explain(args) => queries::explain(args).await.map(done),
        Command::Quarantine(args) => stuck::quarantine(args).await.map(done),
        Command::Blocked(args) => stuck::blocked(args).await.map(done),
        Command::Audit(args) => queries::audit(args).await.map(done),
        Command::Doctor(args) => doctor::doctor(args).await,
        Command::Retry(args) => actions::entries(args, EntryVerb::Retry).await,
        Command::Discard(args) => actions::entries(args, EntryVerb::Discard).await,
        Command::Replay(args) => actions::entries(args, EntryVerb::Replay).await,
        Command::Unblock(args) => actions::entries(args, EntryVerb::Unblock).await,
        Command::Pause(args) => actions::hold(args, true).await.map(done),
        Command::Resume(args) => actions::hold(args, false).await.map(done),
        Command::Purge(args) => actions::purge(args).await.map(done),
        Command::Erase(args) => erase::erase(args).await.map(done),
        Command::Backfill(args) => actions::backfill(args).await.map(done),
    }
}

/// A number of things that fit into memory, and into a minute.
fn many(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (1..=10_000).contains(number));
    number.ok_or_else(|| "use a number between 1 and 10,000".to_owned())
}
