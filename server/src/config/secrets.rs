//! Secrets that prove nothing: too short, or known to more than one sender.

use std::collections::BTreeMap;

use super::model::ConfigFile;
use super::plan::{InboxPlan, Planner, Secrets};
use super::sources::HttpPlan;
use super::value::{Located, SecretRef, many};

/// A secret of fewer characters is guessed within minutes.
const SHORTEST: usize = 8;
/// A secret of fewer characters is worth a warning: 128 random bits have 22 characters in base64.
const SHORT: usize = 16;

/// Why a secret cannot be meant.
fn is_guessed(secret: &str) -> Option<String> {
    let count = secret.chars().count();
    if count < SHORTEST {
        return Some(format!(
            "a secret of {count} characters is guessed; use 32 random ones, as from `openssl rand -hex 16`"
        ));
    }
    let first = secret.chars().next();
    let same = secret.chars().all(|c| Some(c) == first);
    same.then(|| {
        "a secret that is one character again and again is guessed; use `openssl rand -hex 16`".to_owned()
    })
}

impl Planner {
    /// Refuses secrets that are guessed or that two kinds of senders share; returns what is only risky.
    pub(super) fn check_secrets(&mut self, file: &ConfigFile, inboxes: &[InboxPlan]) -> Vec<String> {
        let mut warnings = Vec::new();
        let mut known: BTreeMap<String, (&str, &HttpPlan)> = BTreeMap::new();
        for (inbox, plan) in inboxes.iter().filter_map(|plan| {
            Some((file.inbox.iter().find(|(name, _)| name.as_str() == plan.name)?.1, plan))
        }) {
            for http in &plan.http {
                let at = inbox.http.iter().find(|(name, _)| name.as_str() == http.name);
                let at = at.and_then(|(_, http)| http.secret.as_ref()).map_or(plan.at, Located::at);
                for secret in &http.secrets {
                    if let Some(why) = is_guessed(secret) {
                        self.wrong(at, why);
                        continue;
                    }
                    // A public key is no secret.
                    if secret.starts_with("whpk_") {
                        continue;
                    }
                    if secret.chars().count() < SHORT {
                        let source = &http.name;
                        warnings.push(format!("a secret of the source {source:?} has fewer than {SHORT} characters; use 32 random ones"));
                    }
                    let Some((inbox, other)) = known.insert(secret.clone(), (&plan.name, http)) else {
                        continue;
                    };
                    if (&*plan.name, &http.name) == (inbox, &other.name) {
                        continue;
                    }
                    let (one, two) = (&other.name, &http.name);
                    if (other.format, other.verify) == (http.format, http.verify) {
                        warnings.push(format!(
                            "the sources {one:?} and {two:?} have the same secret: what is signed for one is taken by the other; give each \
                             its own"
                        ));
                    } else {
                        let what = format!(
                            "the source {one:?} has the same secret and verifies in another way, so a sender of one can pose as the other; \
                             give each its own"
                        );
                        self.wrong(at, what);
                    }
                }
            }
        }
        // A handler that has the secret of a source can send it anything.
        for inbox in file.inbox.values() {
            for (key, handler) in &inbox.handler {
                for secret in many(handler.secret.as_ref(), 0).0 {
                    let Some(read) = self.read_again(secret) else { continue };
                    if let Some((_, source)) = known.get(&read) {
                        let (key, source) = (key.as_str(), &source.name);
                        warnings.push(format!(
                            "the handler {key:?} is sent signatures with the secret of the source {source:?}, so it can send messages \
                             there; give each its own"
                        ));
                    }
                }
            }
        }
        warnings
    }

    /// A secret that was read before, if secrets are read; what was wrong with it was said then.
    fn read_again(&self, secret: &SecretRef) -> Option<String> {
        (self.secrets == Secrets::Read).then(|| secret.read().ok()).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_guessed_is_refused() {
        for bad in ["", "x", "1234567", "aaaaaaaaaaaaaaaaaaaaaaaa", "äöüäöüä"] {
            assert!(is_guessed(bad).is_some(), "{bad:?}");
        }
        assert_eq!(is_guessed("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"), None);
    }
}
