//! Encryption at rest, checked.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use oncebox_sealed::{Keyring, Sealed, SharedKeyring};

use super::model::{self, Unsealed};
use super::plan::{Planner, Secrets};
use super::value::{Located, SecretRef};

/// A secret of 32 bytes.
type SealKey = [u8; 32];

/// How a store is encrypted. Never shows a key.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct SealPlan {
    /// The keys by name, the one to write with first. None if they are only assumed to be there, or could not be read.
    keys: Vec<(String, SealKey)>,
    fingerprints: SealKey,
    plaintext: bool,
    version_1: bool,
    /// Why an operator has no keys, if there are none.
    locked: Option<String>,
}

impl fmt::Debug for SealPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.keys.iter().map(|(name, _)| name).collect();
        f.debug_struct("SealPlan").field("keys", &names).finish_non_exhaustive()
    }
}

impl SealPlan {
    /// Why what is sealed cannot be shown, if it cannot.
    pub(crate) fn locked(&self) -> Option<&str> {
        self.locked.as_deref()
    }

    /// The keys; none of them if they could not be read.
    pub(crate) fn keyring(&self) -> oncebox::Result<Keyring> {
        let Some(((name, key), others)) = self.keys.split_first() else { return Ok(Keyring::locked()) };
        let keyring = Keyring::new(name, key, &self.fingerprints)?;
        others.iter().try_fold(keyring, |keyring, (name, key)| keyring.reads(name, key))
    }

    /// A store that is encrypted like this.
    pub(crate) fn wrap<S>(&self, store: S, keys: SharedKeyring) -> Sealed<S> {
        let mut sealed = Sealed::new(store, keys);
        // What cannot be opened is shown as sealed, and what is not sealed as it is.
        if self.plaintext || self.locked.is_some() {
            sealed = sealed.allow_plaintext();
        }
        if self.version_1 { sealed } else { sealed.require_version_2() }
    }

    /// Whether only keys differ: they can be replaced while the store is used.
    pub(super) fn is_same_but_keys(&self, other: &Self) -> bool {
        (self.plaintext, self.version_1) == (other.plaintext, other.version_1)
    }

    /// Whether repeats are recognised by the same secret.
    pub(crate) fn has_fingerprints_of(&self, other: &Self) -> bool {
        self.fingerprints == other.fingerprints
    }

    /// What is risked with it.
    pub(super) fn warning(&self) -> Option<&'static str> {
        self.plaintext.then_some(
            "`seal.plaintext` is \"read\": a person who can write to the database can have plain messages delivered; set it to \
             \"refuse\" when the last message of the time before has left",
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
                    "there is no key; add one, like `keys = { \"2026-11\" = \"file:/run/secrets/seal\" }`",
                );
                return None;
            }
            (None, [only]) => *only,
            (None, several) => {
                let what = format!(
                    "`active` is missing, and there are several keys; name one of {}",
                    several.join(", ")
                );
                self.wrong(seal.at(), what);
                return None;
            }
            (Some(active), known) if known.contains(&active.as_str()) => active.as_str(),
            (Some(active), known) => {
                let what = format!("there is no key {:?}; name one of {}", active.as_str(), known.join(", "));
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
                    self.wrong(secret.at(), "another key of this store has the same value; make a new one");
                }
                keys.push((name.to_owned(), key));
            }
        }
        let fingerprints = self.seal_key(&seal.fingerprints, &mut locked);
        if fingerprints.is_some_and(|secret| keys.iter().any(|(_, key)| *key == secret)) {
            let what = "`fingerprints` has the value of a key, which is rotated, and this never is; make another secret";
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
        // What the library says of names and values.
        plan.keyring().map_err(|error| self.wrong(seal.at(), error.what())).ok()?;
        Some(plan)
    }

    /// The value of a key. An operator who looks at a store may be one who must not read it: then that is noted, and not wrong.
    fn seal_key(&mut self, secret: &Located<SecretRef>, locked: &mut Option<String>) -> Option<SealKey> {
        if self.secrets == Secrets::Assume {
            return None;
        }
        let read = secret.read().and_then(|text| {
            decoded(&text).ok_or_else(|| {
                format!("{} is no key: 32 random bytes in base64 or 64 hexadecimal digits, as from `openssl rand -base64 32`", **secret)
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

/// 64 hexadecimal digits, or base64 of 32 bytes.
fn decoded(text: &str) -> Option<SealKey> {
    if text.len() == 64 {
        return super::api::digits(text);
    }
    let bytes = STANDARD.decode(text).or_else(|_| STANDARD_NO_PAD.decode(text)).ok()?;
    bytes.try_into().ok()
}
