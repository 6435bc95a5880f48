//! `oncebox erase`.

use oncebox::state::Status;
use serde_json::json;

use super::CommandError;
use super::actions::tell;
use super::print;
use super::target::{ActorArgs, OneMessageArgs, TargetArgs};
use crate::api::wire;
use crate::cli::out;

#[derive(Debug, clap::Args)]
pub(crate) struct ErasureArgs {
    #[command(flatten)]
    place: TargetArgs,
    #[command(flatten)]
    who: ActorArgs,
    #[command(flatten)]
    message: OneMessageArgs,
    /// Discard entries that are pending or poisoned; without it, they refuse the erasure
    #[arg(long)]
    discard_unfinished: bool,
    /// Erase for good (default: dry run)
    #[arg(long)]
    confirm: bool,
}

pub(super) async fn erase(args: &ErasureArgs) -> Result<(), CommandError> {
    let key = args.message.key(&args.place)?;
    let client = args.place.open().await?;
    if !args.confirm {
        let view = client.message(&key).await.map_err(|failed| args.message.not_found(failed))?;
        return preview(args, &view);
    }
    let erasure = wire::ErasureAction {
        operation: args.who.id(),
        actor: args.who.actor(),
        reason: args.who.reason()?,
        discard_unfinished: args.discard_unfinished,
    };
    let acted = client.erase(&key, &erasure).await.map_err(|failed| args.message.not_found(failed));
    let acted = tell(&args.place, "erase", erasure.operation, acted)?;
    if let (Some(erased), false) = (acted.erased, args.place.json) {
        let wire::ErasureResult { discarded, quarantined } = erased;
        out::line(&format!(
            "{discarded} entries discarded, {quarantined} messages that were quarantined removed"
        ))?;
        out::eprint_note(
            "backups, logs and what the database has not overwritten yet may still hold the content; see `Erase one message` in the guide on operating",
        );
    }
    Ok(())
}

/// Shows what would be erased, and what would refuse it.
fn preview(args: &ErasureArgs, view: &wire::MessageDetails) -> Result<(), CommandError> {
    let has = |status: Status| view.entries.iter().filter(|entry| entry.status.0 == status).count();
    let (running, unfinished) = (has(Status::Running), has(Status::Pending) + has(Status::Poisoned));
    let (stored, quarantined) = (view.stored.is_some(), view.quarantined.len());
    let refused = running > 0 || (unfinished > 0 && !args.discard_unfinished);
    if args.place.json {
        return print::json(&json!({
            "dry_run": true, "key": view.key, "stored": stored, "erased": view.erased, "running": running,
            "unfinished": unfinished, "quarantined": quarantined, "refused": refused,
        }));
    }
    let message = match (stored, view.erased) {
        (true, _) => "the stored message",
        (false, true) => "nothing more of the message, which was erased before",
        (false, false) => "no stored message",
    };
    out::line(&format!("would erase {message} and {quarantined} that are quarantined under {}", view.key.0))?;
    let advice = if running > 0 {
        format!("refused: {running} entries are running; wait until their runs have ended")
    } else if refused {
        format!(
            "refused: {unfinished} entries are pending or poisoned; let them finish, or discard them with --discard-unfinished"
        )
    } else if unfinished > 0 {
        format!("{unfinished} entries would be discarded; --confirm erases for good")
    } else {
        "--confirm erases for good".to_owned()
    };
    out::line(&advice)?;
    print::entries(&view.entries)
}
