//! The commands of an operator, straight on a store: what is stuck, why, and what to do about it.

mod act;
mod look;
mod place;
mod print;

use std::process::ExitCode;

use clap::Subcommand;
use oncebox::state::Operation;

use place::{Failed, opened};

/// What the numbers that these commands end with mean. They are part of the interface.
const EXITS: &str = "Exit codes: 0 done, 1 a check found something wrong, 2 wrong command line, 3 the store cannot be opened, \
                     4 it failed, 5 not found or refused";

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// How much of everything there is, and what is paused.
    #[command(after_help = format!("Example:\n  oncebox status --store sqlite:inbox.db --inbox orders\n\n{EXITS}"))]
    Status(look::Status),
    /// Lists entries, the oldest message first.
    #[command(after_help = format!(
        "Example:\n  oncebox list --store sqlite:inbox.db --inbox orders --status poisoned --error 'refused'\n\n{EXITS}"
    ))]
    List(look::List),
    /// Everything that is known of one message, and why it is where it is.
    #[command(after_help = format!(
        "Example:\n  oncebox explain --store sqlite:inbox.db --inbox orders --id evt_1 --source shop\n\n{EXITS}"
    ))]
    Explain(look::Explain),
    /// What operators did, the latest first.
    #[command(after_help = format!("Example:\n  oncebox audit --store sqlite:inbox.db --inbox orders --by ada\n\n{EXITS}"))]
    Audit(look::Audit),
    /// What endangers the inbox or its store.
    #[command(after_help = format!(
        "Example:\n  oncebox doctor --store sqlite:inbox.db --inbox orders --handlers ship-order,bill\n\n{EXITS}"
    ))]
    Doctor(look::Doctor),
    /// Tries poisoned entries again: one by its key, or all that a filter takes.
    #[command(after_help = format!(
        "Examples:\n  oncebox retry --store sqlite:inbox.db --inbox orders --actor ada --key 1f… --of ship-order\n  \
         oncebox retry --store sqlite:inbox.db --inbox orders --actor ada --reason 'depot is back' --error refused --confirm\n\n{EXITS}"
    ))]
    Retry(act::Entries),
    /// Gives entries up: one by its key, or all that a filter takes.
    #[command(after_help = format!(
        "Example:\n  oncebox discard --store sqlite:inbox.db --inbox orders --actor ada --key 1f… --of ship-order\n\n{EXITS}"
    ))]
    Discard(act::Entries),
    /// Runs finished entries again, as a new generation.
    #[command(after_help = format!(
        "Example:\n  oncebox replay --store sqlite:inbox.db --inbox orders --actor ada --key 1f… --of ship-order\n\n{EXITS}"
    ))]
    Replay(act::Entries),
    /// Lets those behind a poisoned entry with its ordering key go on without it.
    #[command(after_help = format!(
        "Example:\n  oncebox unblock --store sqlite:inbox.db --inbox orders --actor ada --key 1f… --of ship-order\n\n{EXITS}"
    ))]
    Unblock(act::Entries),
    /// Stops claims for a handler, or for one of its ordering keys, on every worker.
    #[command(after_help = format!(
        "Example:\n  oncebox pause --store sqlite:inbox.db --inbox orders --actor ada --of ship-order --reason 'depot is down'\n\n{EXITS}"
    ))]
    Pause(act::Hold),
    /// Allows claims again.
    #[command(after_help = format!(
        "Example:\n  oncebox resume --store sqlite:inbox.db --inbox orders --actor ada --of ship-order\n\n{EXITS}"
    ))]
    Resume(act::Hold),
    /// Removes messages that were kept aside; says how many there are unless `--confirm` is given.
    #[command(after_help = format!(
        "Example:\n  oncebox purge --store sqlite:inbox.db --inbox orders --actor ada --older-than 30days --confirm\n\n{EXITS}"
    ))]
    Purge(act::Purge),
}

/// Runs a command to its end.
pub(crate) fn run(command: &Command) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("oncebox: {error}");
            return ExitCode::from(4);
        }
    };
    match runtime.block_on(dispatch(command)) {
        Ok(found) => ExitCode::from(u8::from(found)),
        Err(Failed { code, error }) => {
            eprintln!("oncebox: {}", print::printable(&format!("{error:#}")));
            ExitCode::from(code)
        }
    }
}

/// Says whether a check found something wrong.
async fn dispatch(command: &Command) -> Result<bool, Failed> {
    let done = |()| false;
    match command {
        Command::Status(args) => look::status(&*opened(&args.place).await?, args).await.map(done),
        Command::List(args) => look::list(&*opened(&args.place).await?, args).await.map(done),
        Command::Explain(args) => look::explain(&*opened(&args.place).await?, args).await.map(done),
        Command::Audit(args) => look::audit(&*opened(&args.place).await?, args).await.map(done),
        Command::Doctor(args) => look::doctor(&*opened(&args.place).await?, args).await,
        Command::Retry(args) => act::entries(args, Operation::Retry).await,
        Command::Discard(args) => act::entries(args, Operation::Discard).await,
        Command::Replay(args) => act::entries(args, Operation::Replay).await,
        Command::Unblock(args) => act::entries(args, Operation::Unblock).await,
        Command::Pause(args) => act::hold(&*opened(&args.place).await?, args, true).await.map(done),
        Command::Resume(args) => act::hold(&*opened(&args.place).await?, args, false).await.map(done),
        Command::Purge(args) => act::purge(&*opened(&args.place).await?, args).await.map(done),
    }
}
