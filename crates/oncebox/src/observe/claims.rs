//! Spans of claims in hand, for their runs and settlements. Tests: `oncebox-telemetry`, `tests/ways.rs`.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tracing::Span;

use crate::name::HandlerKey;
use crate::store::{Claim, Seq, Token};

/// Open spans of claims. Costs one flag check if no subscriber wants spans.
#[derive(Debug, Default)]
pub(crate) struct ClaimSpans {
    /// True after the first span.
    used: AtomicBool,
    table: Mutex<HashMap<(Seq, HandlerKey), (Token, Span)>>,
}

impl ClaimSpans {
    /// Keeps the span of a claim until the claim ends, in place of the span of an older claim of the same entry.
    pub(super) fn begin(&self, claim: &Claim, span: Span) {
        if span.is_disabled() {
            return;
        }
        self.used.store(true, Ordering::Relaxed);
        let older = self.table.lock().insert(place(claim), (claim.token, span));
        // The end of the span calls the subscriber, so drop it without the lock.
        drop(older);
    }

    /// Returns true if a subscriber has wanted a span.
    pub(super) fn is_used(&self) -> bool {
        self.used.load(Ordering::Relaxed)
    }

    /// Returns the span of a claim, or a disabled one.
    pub(crate) fn of(&self, claim: &Claim) -> Span {
        if !self.is_used() {
            return Span::none();
        }
        let table = self.table.lock();
        let found = table.get(&place(claim)).filter(|(token, _)| *token == claim.token);
        found.map_or_else(Span::none, |(_, span)| span.clone())
    }

    /// Ends the span of a claim.
    pub(crate) fn end(&self, claim: &Claim) {
        if !self.is_used() {
            return;
        }
        let mut table = self.table.lock();
        let is_this = |(token, _): &(Token, Span)| *token == claim.token;
        let ended =
            if table.get(&place(claim)).is_some_and(is_this) { table.remove(&place(claim)) } else { None };
        drop(table);
        drop(ended);
    }
}

fn place(claim: &Claim) -> (Seq, HandlerKey) {
    (claim.seq, claim.handler.clone())
}
