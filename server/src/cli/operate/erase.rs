//! `oncebox erase`. Tests: `tests/operate/erase.rs`.

use oncebox::state::Status;
use serde_json::json;

use super::CommandError;
use super::actions::report_action;
use super::print;
use super::target::{ActorArgs, OneMessageArgs, TargetArgs};
use crate::cli::out;
use crate::operator::wire;

#[derive(Debug, clap::Args)]
pub(crate) struct ErasureArgs {
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    audit: ActorArgs,
    #[command(flatten)]
    message: OneMessageArgs,
    /// Discard pending and poisoned entries, which otherwise refuse the erasure
    #[arg(long)]
    discard_unfinished: bool,
    /// Erase for good (default: dry run)
    #[arg(long)]
    pub(super) confirm: bool,
}

pub(super) async fn erase(args: &ErasureArgs) -> Result<(), CommandError> {
    let key = args.message.key(&args.target)?;
    let client = args.target.open().await?;
    if !args.confirm {
        let view = client.message(&key).await.map_err(|failed| args.message.not_found(failed))?;
        return preview(args, &view);
    }
    let erasure = wire::ErasureAction {
        operation: args.audit.id(),
        actor: args.audit.actor(),
        reason: args.audit.reason()?,
        discard_unfinished: args.discard_unfinished,
    };
    let acted = client.erase(&key, &erasure).await.map_err(|failed| args.message.not_found(failed));
    let acted = report_action(&args.target, "erase", erasure.operation, acted)?;
    if let (Some(erased), false) = (acted.erased, args.target.json) {
        let wire::ErasureResult { discarded, quarantined } = erased;
        out::line(&format!("discarded {discarded} entries, deleted {quarantined} quarantined messages"))?;
        out::eprint_note(
            "backups, logs and free database pages may still contain it; see `Erase one message` in the operating guide",
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
    if args.target.json {
        return print::json(&json!({
            "dry_run": true, "key": view.key, "stored": stored, "erased": view.erased, "running": running,
            "unfinished": unfinished, "quarantined": quarantined, "refused": refused,
        }));
    }
    let message = match (stored, view.erased) {
        (true, _) => "the stored message",
        (false, true) => "nothing more of the message, already erased,",
        (false, false) => "no stored message",
    };
    out::line(&format!("would erase {message} and {quarantined} quarantined messages of {}", view.key.0))?;
    let advice = if running > 0 {
        format!("refused: {running} entries are running; wait until they end")
    } else if refused {
        format!(
            "refused: {unfinished} entries are pending or poisoned; wait, or discard them with --discard-unfinished"
        )
    } else if unfinished > 0 {
        format!("would discard {unfinished} entries; erase for good with --confirm")
    } else {
        "erase for good with --confirm".to_owned()
    };
    out::line(&advice)?;
    print::entries(&view.entries)
}
