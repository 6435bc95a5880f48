//! Commands for operators, on a store or through the API. Tests: `tests/operate/` and `tests/serve/api/commands.rs`.

mod actions;
mod api_client;
mod doctor;
mod erase;
mod print;
mod queries;
mod stuck;
mod target;

use std::process::ExitCode;

use clap::Subcommand;

use super::{CommandError, EXITS, Exit, checked};
use crate::operator::wire::EntryVerb;

/// Commands for operators.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Count messages and entries; show paused handlers and blocked ordering keys
    #[command(after_help = format!(
        "Examples:\n  oncebox status --store sqlite:inbox.db --inbox orders\n  \
         oncebox status --api https://inbox.example:8472 --inbox orders --json\n\n{EXITS}"
    ))]
    Status(queries::StatusArgs),
    /// List entries, oldest message first
    #[command(after_help = format!(
        "Example:\n  oncebox list --store sqlite:inbox.db --inbox orders --status poisoned --error 'refused'\n\n{EXITS}"
    ))]
    List(queries::ListArgs),
    /// Show one message with its entries and failed attempts
    #[command(after_help = format!(
        "Example:\n  oncebox show --store sqlite:inbox.db --inbox orders --id evt_1 --source shop --payload\n\n{EXITS}"
    ))]
    Show(queries::ShowArgs),
    /// Explain the history of one message and the state of its entries
    #[command(after_help = format!(
        "Example:\n  oncebox explain --store sqlite:inbox.db --inbox orders --id evt_1 --source shop\n\n{EXITS}"
    ))]
    Explain(queries::ExplainArgs),
    /// List quarantined messages, oldest first
    ///
    /// A message is quarantined if its key is known with another payload, or if it is older than the retention window.
    #[command(after_help = format!(
        "Example:\n  oncebox quarantine --store sqlite:inbox.db --inbox orders --reason conflict\n\n{EXITS}"
    ))]
    Quarantine(stuck::QuarantineArgs),
    /// List ordering keys that a poisoned entry blocks
    ///
    /// `retry`, `discard` or `unblock` the poisoned entry by its key, so that the entries behind it continue.
    #[command(after_help = format!("Example:\n  oncebox blocked --store sqlite:inbox.db --inbox orders\n\n{EXITS}"))]
    Blocked(stuck::BlockedArgs),
    /// List actions of operators, newest first
    #[command(after_help = format!("Example:\n  oncebox audit --store sqlite:inbox.db --inbox orders --by ada\n\n{EXITS}"))]
    Audit(queries::AuditArgs),
    /// Find problems of the inbox or its store
    ///
    /// Checks tables, indexes, durability settings, clocks, retention windows, dead rows, long transactions, entries whose handler
    /// no worker runs, and entries that wait for an operator. The exit code is 1 if a finding is dangerous.
    #[command(after_help = format!(
        "Examples:\n  oncebox doctor --config oncebox.toml\n  \
         oncebox doctor --store sqlite:inbox.db --inbox orders --handlers ship-order,bill --redelivery 3days\n\n{EXITS}"
    ))]
    Doctor(doctor::DoctorArgs),
    /// Retry poisoned entries: one message, or all that match a filter
    #[command(after_help = format!(
        "Examples:\n  oncebox retry --store sqlite:inbox.db --inbox orders --actor ada --reason 'depot is back' --id evt_1 \
         --source shop --handler ship-order\n  \
         oncebox retry --store sqlite:inbox.db --inbox orders --actor ada --reason 'depot is back' --error refused --confirm\
         \n\n{EXITS}"
    ))]
    Retry(actions::EntryActionArgs),
    /// Discard entries: one message, or all that match a filter
    #[command(after_help = format!(
        "Example:\n  oncebox discard --store sqlite:inbox.db --inbox orders --actor ada --reason 'test orders' --type order.test\
         \n\n{EXITS}"
    ))]
    Discard(actions::EntryActionArgs),
    /// Run finished entries again, as a new generation
    #[command(after_help = format!(
        "Example:\n  oncebox replay --store sqlite:inbox.db --inbox orders --actor ada --reason 'labels were blank' --handler \
         ship-order --since 2026-01-31T12:00:00Z\n\n{EXITS}"
    ))]
    Replay(actions::EntryActionArgs),
    /// Let entries behind a poisoned one continue without it
    #[command(after_help = format!(
        "Example:\n  oncebox unblock --store sqlite:inbox.db --inbox orders --actor ada --reason 'order was cancelled' --id evt_1 \
         --source shop --handler ship-order\n\n{EXITS}"
    ))]
    Unblock(actions::EntryActionArgs),
    /// Pause a handler, or one of its ordering keys, on every worker
    #[command(after_help = format!(
        "Example:\n  oncebox pause --store sqlite:inbox.db --inbox orders --actor ada --reason 'depot is down' --handler ship-order\
         \n\n{EXITS}"
    ))]
    Pause(actions::PauseArgs),
    /// Resume a handler or ordering key
    #[command(after_help = format!(
        "Example:\n  oncebox resume --store sqlite:inbox.db --inbox orders --actor ada --reason 'depot is back' --handler ship-order\
         \n\n{EXITS}"
    ))]
    Resume(actions::PauseArgs),
    /// Delete quarantined messages (default: dry run)
    #[command(after_help = format!(
        "Example:\n  oncebox purge --store sqlite:inbox.db --inbox orders --actor ada --reason 'settled with the shop' \
         --older-than 30days --confirm\n\n{EXITS}"
    ))]
    Purge(actions::PurgeArgs),
    /// Erase the content of one message for good, as for a privacy request
    ///
    /// Deletes payloads, headers, ids, errors, results and quarantined messages of the key. The key itself stays as a digest, so that
    /// redeliveries are still duplicates. Without `--confirm`, shows what would be erased.
    #[command(after_help = format!(
        "Examples:\n  oncebox erase --store sqlite:inbox.db --inbox orders --reason 'request 17' --id evt_1 --source shop\n  \
         oncebox erase --store sqlite:inbox.db --inbox orders --actor ada --reason 'request 17' --id evt_1 --source shop \
         --discard-unfinished --confirm\n\n{EXITS}"
    ))]
    Erase(erase::ErasureArgs),
    /// Add entries for messages that were stored before a handler existed
    ///
    /// Skips messages that the handler has had under its key or a former key, so it is safe to repeat.
    #[command(after_help = format!(
        "Example:\n  oncebox backfill --store sqlite:inbox.db --inbox orders --actor ada --reason 'receipts are new' --handler \
         send-receipt --type 'order.*' --confirm\n\n{EXITS}"
    ))]
    Backfill(actions::BackfillArgs),
}

impl Command {
    /// Returns true if the command changes nothing in a store, like a dry run.
    pub(crate) fn is_read(&self) -> bool {
        match self {
            Self::Status(_)
            | Self::List(_)
            | Self::Show(_)
            | Self::Explain(_)
            | Self::Quarantine(_)
            | Self::Blocked(_)
            | Self::Audit(_)
            | Self::Doctor(_) => true,
            Self::Retry(args) | Self::Discard(args) | Self::Replay(args) | Self::Unblock(args) => {
                args.is_dry_run()
            }
            Self::Pause(_) | Self::Resume(_) => false,
            Self::Purge(args) => !args.confirm,
            Self::Erase(args) => !args.confirm,
            Self::Backfill(args) => !args.confirm,
        }
    }
}

/// Runs a command.
pub(crate) fn run(command: &Command) -> Result<ExitCode, CommandError> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.map_err(|error| Exit::Start.with(error))?.block_on(dispatch(command)).map(checked)
}

/// Runs a command; returns true if a check found a problem.
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

/// Parses a limit: 1 to 10,000.
fn many(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (1..=10_000).contains(number));
    number.ok_or_else(|| "use a number between 1 and 10,000".to_owned())
}
