//! Checks the settings of encryption at rest. Tests: `tests/serve/sealed.rs`.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use oncebox_sealed::{Keyring, Sealed, SharedKeyring};

use super::model::{self, Unsealed};
use super::plan::{Planner, Secrets};
use super::value::{Located, SecretRef};

/// A secret of 32 bytes.
type SealKey = [u8; 32];

/// Plan of the encryption of a store. Never shows a key.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct SealPlan {
    /// Keys by name, the active one first. Empty if keys are assumed or unreadable.
    keys: Vec<(String, SealKey)>,
    fingerprints: SealKey,
    plaintext: bool,
    version_1: bool,
    /// Reason that an operator has no keys, if any.
    locked: Option<String>,
}

impl fmt::Debug for SealPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.keys.iter().map(|(name, _)| name).collect();
        f.debug_struct("SealPlan").field("keys", &names).finish_non_exhaustive()
    }
}

impl SealPlan {
    /// Returns the reason that sealed content cannot be shown, if any.
    pub(crate) fn locked(&self) -> Option<&str> {
        self.locked.as_deref()
    }

    /// Returns the keyring; a locked one without keys.
    pub(crate) fn keyring(&self) -> oncebox::Result<Keyring> {
        let Some(((name, key), others)) = self.keys.split_first() else { return Ok(Keyring::locked()) };
        let keyring = Keyring::new(name, key, &self.fingerprints)?;
        others.iter().try_fold(keyring, |keyring, (name, key)| keyring.reads(name, key))
    }

    /// Wraps a store with this encryption.
    pub(crate) fn wrap<S>(&self, store: S, keys: SharedKeyring) -> Sealed<S> {
        let mut sealed = Sealed::new(store, keys);
        // Without keys, sealed content is shown as sealed and plain content as it is.
        if self.plaintext || self.locked.is_some() {
            sealed = sealed.allow_plaintext();
        }
        if self.version_1 { sealed } else { sealed.require_version_2() }
    }

    /// Returns true if at most the keys differ, which a reload can replace.
    pub(super) fn is_same_but_keys(&self, other: &Self) -> bool {
        (self.plaintext, self.version_1) == (other.plaintext, other.version_1)
    }

    /// Returns true if both recognise duplicates with the same secret.
    pub(crate) fn has_fingerprints_of(&self, other: &Self) -> bool {
        self.fingerprints == other.fingerprints
    }

    /// Returns a warning about plain messages, if allowed.
    pub(super) fn warning(&self) -> Option<&'static str> {
        self.plaintext.then_some(
            "`seal.plaintext` is \"read\": an attacker who can write to the database can inject plain messages; set it to \"refuse\" \
             when retention has deleted the last plain message",
        )
    }
}

impl Planner {
    pub(super) fn seal(&mut self, seal: &Located<model::SealTable>) -> Option<SealPlan> {
        let mut names: Vec<&str> = seal.keys.keys().map(|name| name.as_str()).collect();
        let active = match (&seal.active, names.as_slice()) {
            (None, []) => {
                self.wrong(
                    seal.at(),
                    "no key is configured; add one, like `keys = { \"2026-11\" = \"file:/run/secrets/seal\" }`",
                );
                return None;
            }
            (None, [only]) => *only,
            (None, several) => {
                let what = format!(
                    "`active` is missing, and several keys are configured; name one of {}",
                    several.join(", ")
                );
                self.wrong(seal.at(), what);
                return None;
            }
            (Some(active), known) if known.contains(&active.as_str()) => active.as_str(),
            (Some(active), known) => {
                let what = format!("unknown key {:?}; name one of {}", active.as_str(), known.join(", "));
                self.wrong(active.at(), what);
                return None;
            }
        };
        names.retain(|name| *name != active);
        let (mut keys, mut locked) = (Vec::new(), None);
        for name in std::iter::once(active).chain(names) {
            let found = seal.keys.iter().find(|(known, _)| known.as_str() == name);
            let Some((_, secret)) = found else { continue };
            if let Some(key) = self.seal_key(secret, &mut locked) {
                if keys.iter().any(|(_, known)| *known == key) {
                    self.wrong(secret.at(), "another key of this store has the same value; create a new one");
                }
                keys.push((name.to_owned(), key));
            }
        }
        let fingerprints = self.seal_key(&seal.fingerprints, &mut locked);
        if fingerprints.is_some_and(|secret| keys.iter().any(|(_, key)| *key == secret)) {
            let what = "`fingerprints` has the value of a key, but keys rotate and it must never change; create another secret";
            self.wrong(seal.fingerprints.at(), what);
        }
        if locked.is_some() || self.secrets == Secrets::Assume {
            keys.clear();
        }
        let plan = SealPlan {
            keys,
            fingerprints: fingerprints.unwrap_or_default(),
            plaintext: seal.plaintext == Some(Unsealed::Read),
            version_1: seal.version_1 != Some(Unsealed::Refuse),
            locked,
        };
        // The library checks names and values.
        plan.keyring().map_err(|error| self.wrong(seal.at(), error.what())).ok()?;
        Some(plan)
    }

    /// Reads a key. For an operator of a store, an unreadable key locks the keyring and is no problem.
    fn seal_key(&mut self, secret: &Located<SecretRef>, locked: &mut Option<String>) -> Option<SealKey> {
        if self.secrets == Secrets::Assume {
            return None;
        }
        let read = secret.read().and_then(|text| {
            decoded(&text).ok_or_else(|| {
                format!("{} is not a key: use 32 random bytes in base64 or 64 hexadecimal digits, as from `openssl rand -base64 32`", **secret)
            })
        });
        match read {
            Ok(key) => Some(key),
            Err(why) if self.secrets == Secrets::Stores => {
                locked.get_or_insert(why);
                None
            }
            Err(why) => {
                self.wrong(secret.at(), why);
                None
            }
        }
    }
}

/// Decodes 64 hexadecimal digits, or base64 of 32 bytes.
fn decoded(text: &str) -> Option<SealKey> {
    if text.len() == 64 {
        return super::api::digits(text);
    }
    let bytes = STANDARD.decode(text).or_else(|_| STANDARD_NO_PAD.decode(text)).ok()?;
    bytes.try_into().ok()
}
