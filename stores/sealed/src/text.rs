//! Error texts: sealed, and encoded as text that any store keeps. Tests: `tests/at_rest.rs`.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use oncebox_core::state::{ErrorText, Settlement};
use oncebox_core::store::EntryView;
use oncebox_core::{HandlerKey, InboxName, Key, Result};

use crate::Sealed;
use crate::keyring::Keyring;
use crate::seal::{SealedField, open, seal};

const MARK: &str = "oncebox-sealed:";

/// Returns the place of an error: sealed for the handler's origin, because its other keys change.
fn place<'a>(inbox: &'a InboxName, key: &'a Key, origin: &'a HandlerKey) -> SealedField<'a> {
    SealedField { inbox, key, field: "error", handler: origin.as_str(), message: None }
}

impl<S> Sealed<S> {
    /// Returns the settlement with its error sealed.
    pub(crate) fn seal_settlement(keys: &Keyring, settlement: &Settlement) -> Result<Settlement> {
        let mut settlement = settlement.clone();
        if let Some(error) = &settlement.error {
            let claim = &settlement.claim;
            let plain = error.as_str().as_bytes();
            let text =
                URL_SAFE_NO_PAD.encode(seal(keys, place(&claim.inbox, &claim.key, &claim.origin), plain)?);
            settlement.error = Some(ErrorText::stored(format!("{MARK}{text}")));
        }
        Ok(settlement)
    }

    /// Returns the entry for an operator, with its error readable.
    pub(crate) fn open_entry(&self, inbox: &InboxName, mut entry: EntryView) -> EntryView {
        entry.error =
            entry.error.take().map(|error| self.open_error(inbox, &entry.key, &entry.origin, error));
        entry
    }

    /// Returns an error in readable form. If the store reads only sealed values, the text of an unsealed
    /// error begins with "(not sealed)": it may be the store's own error, or forged.
    pub(crate) fn open_error(
        &self,
        inbox: &InboxName,
        key: &Key,
        origin: &HandlerKey,
        error: ErrorText,
    ) -> ErrorText {
        let Some(sealed) = error.as_str().strip_prefix(MARK) else {
            return if self.plaintext {
                error
            } else {
                ErrorText::new(format!("(not sealed) {}", error.as_str()))
            };
        };
        let bytes = URL_SAFE_NO_PAD.decode(sealed).unwrap_or_default();
        ErrorText::new(match open(&self.keys.keys(), self.oldest, place(inbox, key, origin), &bytes) {
            Ok(plain) => String::from_utf8_lossy(&plain).into_owned(),
            Err(why) => format!("(the error cannot be read: {why})"),
        })
    }
}
