//! `docs/state.md`: the states of an entry, written from the table that tests check the code against. Tests: below.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use oncebox::state::{EDGES, EntryEvent, Status, diagram};

const FILE: &str = "docs/state.md";

const INTRO: &str = "\
<!-- Written by `cargo xtask state-diagram` from `oncebox::state`. Change the code, then run it again. -->

# The states of an entry

An entry is one message for one handler. `decide` chooses the next state after a run, `operate` after an operator's action,
and `follow` for the entries behind a poisoned one. They are pure functions in `crates/oncebox-core/src/state`, and no store
chooses a state itself. A test calls them with every input and fails unless they produce exactly the arrows drawn here. The
conformance suite walks the arrows on every store.

`completed`, `poisoned` and `discarded` are final: only an operator moves an entry out of them, and with it the entries that
were parked behind it.
";

/// Writes the file.
pub(crate) fn write(root: &Path) -> Result<()> {
    fs::write(root.join(FILE), document()?).with_context(|| format!("cannot write {FILE}"))?;
    println!("wrote {FILE}");
    Ok(())
}

/// Fails if the file is out of date.
pub(crate) fn check(root: &Path) -> Result<()> {
    let found = fs::read_to_string(root.join(FILE)).with_context(|| format!("cannot read {FILE}"))?;
    if found != document()? {
        bail!("{FILE} is out of date: run `cargo xtask state-diagram` and commit what it writes");
    }
    println!("{FILE} is up to date");
    Ok(())
}

fn document() -> Result<String> {
    let mut text = format!("{INTRO}\n```mermaid\n{}```\n\n## Events\n\n", diagram());
    text.push_str("| event | from | to | what happened |\n|---|---|---|---|\n");
    for edge in EDGES {
        let event = edge.event.as_str();
        let meaning =
            meaning(edge.event).with_context(|| format!("the event `{event}` has no description"))?;
        let from = edge.from.map_or("(new)", Status::as_str);
        // Writing to a String cannot fail.
        let _ = writeln!(text, "| `{event}` | {from} | {} | {meaning} |", edge.to);
    }
    Ok(text)
}

/// Returns the meaning of an event for an operator who reads the metric.
fn meaning(event: EntryEvent) -> Option<&'static str> {
    Some(match event {
        EntryEvent::Accept => {
            "The message was stored for the handler, in one commit with the message itself."
        }
        EntryEvent::Claim => "A worker leased the entry, under a token greater than every one before it.",
        EntryEvent::Done => "The handler did its work.",
        EntryEvent::Fail => {
            "The handler failed, panicked or ran out of time; it is tried again after a growing wait."
        }
        EntryEvent::Exhaust => "The handler failed, and no attempt is left.",
        EntryEvent::Reject => {
            "The handler said that no retry will help, or the payload did not decode within its grace. No attempt is \
             counted."
        }
        EntryEvent::Defer => {
            "The payload does not decode yet; a newer build may know its format. No attempt is counted."
        }
        EntryEvent::Snooze => "The handler asked to be called later. No attempt is counted.",
        EntryEvent::Release => "The worker gave the entry back, as at shutdown. No attempt is counted.",
        EntryEvent::Dismiss => "The handler said that the message is not worth handling.",
        EntryEvent::Crash => {
            "The worker died: its lease ran out, or the store knows that its process is gone. The entry is a suspect and runs in \
             smaller company, and at last alone. Only a death while it ran alone is counted. After a counted death, and from the \
             third death in company, it waits longer each time. If a later worker survives a run, the deaths in company are \
             forgotten."
        }
        EntryEvent::CrashOut => {
            "As many workers as the handler's `crashes` allows died while they ran the entry alone."
        }
        EntryEvent::Retry => {
            "An operator gave the entry another round, with its attempts and crashes forgotten."
        }
        EntryEvent::Discard => "An operator gave the entry up.",
        EntryEvent::Replay => "An operator runs a finished entry again, as a new generation.",
        EntryEvent::Unblock => {
            "An operator let those behind it with its ordering key go on. It stays poisoned, flagged as skipped."
        }
        EntryEvent::Park => {
            "An earlier entry with its ordering key and handler is poisoned, and the handler parks such keys: it is \
             parked with it, for the reason `parked`."
        }
        EntryEvent::Unpark => {
            "The entry that parked it was retried, discarded or unblocked. It waits for its turn again."
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_file_is_up_to_date() {
        check(&crate::workspace::root()).unwrap();
    }

    #[test]
    fn every_arrow_has_its_row() {
        let document = document().unwrap();
        assert_eq!(document.lines().filter(|line| line.starts_with("| `")).count(), EDGES.len());
    }
}
