//! Logs one line for each message. Wraps a store, so that it covers all sources and handlers, and only committed changes.
//! Tests: below and `tests/serve/zero_config.rs`.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use oncebox::state::{EntryEvent, NextState, Settlement};
use oncebox::store::{
    Claim, ClaimParams, Claimed, Layer, NewMessage, RescueParams, Seq, Settled, StoreLayer, Token,
};
use oncebox::{Accepted, HandlerKey, Message, Result, Store};
use parking_lot::Mutex;

use crate::cli::log::MESSAGES;

/// Maximum claimed messages with a known name. Lines of others show the sequence number.
const MAX_IN_HAND: usize = 10_000;
/// Maximum characters of an id in a line.
const MAX_SHOWN: usize = 64;

/// A store that logs messages.
pub(super) struct MessageLog {
    store: Arc<dyn Store>,
    /// Names of claimed messages by claim. Claims of one call may share a token.
    in_hand: Mutex<HashMap<(Token, Seq, HandlerKey), MessageName>>,
}

/// Name of a message in a line: its type and id.
#[derive(Clone, Debug)]
struct MessageName {
    message_type: String,
    id: String,
}

impl MessageName {
    fn of(message: &Message) -> Self {
        Self { message_type: shown(message.message_type().as_bytes()), id: shown(message.id()) }
    }
}

impl fmt::Display for MessageName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.message_type, self.id)
    }
}

fn in_hand_as(claim: &Claim) -> (Token, Seq, HandlerKey) {
    (claim.token, claim.seq, claim.handler.clone())
}

/// Converts bytes to text of limited length without control characters.
fn shown(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(4 * MAX_SHOWN)]);
    let mut short: String =
        text.chars().take(MAX_SHOWN).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    if bytes.len() > 4 * MAX_SHOWN || text.chars().nth(MAX_SHOWN).is_some() {
        short.push('…');
    }
    short
}

/// Formats a time span; drops fractions of a second above one second.
fn about(span: Duration) -> humantime::FormattedDuration {
    let span = if span < Duration::from_secs(1) { span } else { Duration::from_secs(span.as_secs()) };
    humantime::format_duration(Duration::from_millis(u64::try_from(span.as_millis()).unwrap_or(u64::MAX)))
}

/// Logs a line about one message.
macro_rules! line {
    ($level:ident, $word:literal, $inbox:expr, $name:expr, $($text:tt)+) => {
        tracing::$level!(
            target: MESSAGES,
            event = $word,
            inbox = %$inbox,
            message_type = %$name.message_type,
            id = %$name.id,
            "{:<10} {} {}",
            $word,
            $name,
            format_args!($($text)+)
        )
    };
}

impl MessageLog {
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        Self { store, in_hand: Mutex::default() }
    }

    fn accepted(new: &NewMessage, accepted: Accepted) {
        let (inbox, name) = (&new.inbox, MessageName::of(&new.message));
        let handlers: Vec<&str> = new.routes.iter().map(|route| route.key.as_str()).collect();
        match accepted {
            Accepted::First(_) if handlers.is_empty() => {
                line!(info, "accepted", inbox, name, "(stored; no handler yet)");
            }
            Accepted::First(_) => line!(info, "accepted", inbox, name, "for {}", handlers.join(", ")),
            Accepted::Duplicate(known) => {
                line!(info, "duplicate", inbox, name, "(first seen {} ago)", about(known.age));
            }
            Accepted::HandlersAdded(_, added) => {
                line!(info, "accepted", inbox, name, "again, for new handlers: {added}");
            }
            Accepted::Conflict(_) => {
                line!(warn, "conflict", inbox, name, "(same key, other payload: quarantined)");
            }
            Accepted::Stale => {
                line!(warn, "stale", inbox, name, "(older than the retention window: quarantined)");
            }
            _ => {}
        }
    }

    fn claimed(&self, claimed: &[Claimed]) {
        if !tracing::enabled!(target: MESSAGES, tracing::Level::WARN) {
            return;
        }
        let mut in_hand = self.in_hand.lock();
        if in_hand.len() + claimed.len() > MAX_IN_HAND {
            in_hand.clear();
        }
        in_hand.extend(claimed.iter().map(|one| (in_hand_as(&one.claim), MessageName::of(&one.message))));
    }

    fn settled(&self, settlement: &Settlement, settled: Settled) {
        let claim = &settlement.claim;
        let name = self.in_hand.lock().remove(&in_hand_as(claim));
        if settled != Settled::Applied {
            return;
        }
        let name = name.unwrap_or_else(|| MessageName {
            message_type: "message".into(),
            id: format!("#{}", claim.seq.0),
        });
        let (inbox, handler) = (&claim.inbox, &claim.handler);
        let why = settlement.error.as_ref().map_or("", |error| error.as_str());
        let again = match settlement.next {
            NextState::Pending { delay } => delay,
            _ => Duration::ZERO,
        };
        let attempts = settlement.attempts;
        match settlement.event {
            EntryEvent::Done => {
                line!(
                    info,
                    "delivered",
                    inbox,
                    name,
                    "to {handler} (attempt {})",
                    claim.attempts.saturating_add(1)
                );
            }
            EntryEvent::Fail => {
                line!(
                    warn,
                    "failed",
                    inbox,
                    name,
                    "at {handler} (attempt {attempts}, again in {}): {why}",
                    about(again)
                );
            }
            EntryEvent::Exhaust => {
                line!(error, "poisoned", inbox, name, "at {handler} after {attempts} attempts: {why}");
            }
            EntryEvent::Reject => line!(error, "poisoned", inbox, name, "by {handler}: {why}"),
            EntryEvent::Snooze => {
                line!(info, "postponed", inbox, name, "by {handler} for {}, not counted", about(again));
            }
            EntryEvent::Crash => {
                line!(warn, "crashed", inbox, name, "at {handler}: worker lost, again in {}", about(again));
            }
            EntryEvent::CrashOut => {
                line!(error, "poisoned", inbox, name, "at {handler}: too many worker crashes");
            }
            EntryEvent::Dismiss => line!(warn, "discarded", inbox, name, "by {handler}: {why}"),
            _ => {}
        }
    }
}

impl Layer for MessageLog {
    type Inner = dyn Store;

    fn inner(&self) -> &dyn Store {
        &*self.store
    }
}

#[async_trait]
impl StoreLayer for MessageLog {
    async fn accept(&self, batch: &[NewMessage]) -> Result<Vec<Accepted>> {
        let answers = self.inner().accept(batch).await?;
        for (new, accepted) in batch.iter().zip(&answers) {
            Self::accepted(new, *accepted);
        }
        Ok(answers)
    }

    async fn claim(&self, params: &ClaimParams) -> Result<Vec<Claimed>> {
        let claimed = self.inner().claim(params).await?;
        self.claimed(&claimed);
        Ok(claimed)
    }

    async fn settle(&self, batch: &[Settlement]) -> Result<Vec<Settled>> {
        let settled = self.inner().settle(batch).await?;
        for (settlement, settled) in batch.iter().zip(&settled) {
            self.settled(settlement, *settled);
        }
        Ok(settled)
    }

    async fn rescue(&self, params: &RescueParams) -> Result<Vec<Claimed>> {
        let rescued = self.inner().rescue(params).await?;
        self.claimed(&rescued);
        Ok(rescued)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_id_can_be_shown() {
        assert_eq!(shown(b"evt_1"), "evt_1");
        assert_eq!(shown(b"a\x1b[31m\n"), "a\u{fffd}[31m\u{fffd}");
        assert_eq!(shown(&[b'x'; 1_000]).chars().count(), MAX_SHOWN + 1);
        assert_eq!(about(Duration::from_millis(5_400)).to_string(), "5s");
        assert_eq!(about(Duration::from_micros(5_400)).to_string(), "5ms");
    }
}
