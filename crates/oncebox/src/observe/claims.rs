//! The spans of claims in hand, for the runs and settlements that belong to them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tracing::Span;

use crate::name::HandlerKey;
use crate::store::{Claim, Seq, Token};

/// Open spans of claims. Costs a look at a flag where no subscriber wants spans.
#[derive(Debug, Default)]
pub(crate) struct ClaimSpans {
    /// Whether there has been one.
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
        // A subscriber is told of its end, but not under the lock.
        drop(older);
    }

    /// Whether a subscriber has wanted one.
    pub(super) fn is_used(&self) -> bool {
        self.used.load(Ordering::Relaxed)
    }

    /// The span of a claim; a disabled one if it has none.
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
