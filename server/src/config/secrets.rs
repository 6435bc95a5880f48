//! Checks secrets: too short, or shared by several senders. Tests: below and `tests/serve/config/secrets.rs`.

use std::collections::BTreeMap;

use super::model::ConfigFile;
use super::plan::{InboxPlan, Planner, Secrets};
use super::sources::HttpPlan;
use super::value::{Located, SecretRef, many};

/// Minimum length of a secret, in characters: an attacker guesses a shorter one within minutes.
const SHORTEST: usize = 8;
/// Length below which a secret gets a warning, in characters. 128 random bits have 22 in base64.
const SHORT: usize = 16;

/// Returns the reason to refuse a weak secret, if any.
fn weakness(secret: &str) -> Option<String> {
    let count = secret.chars().count();
    if count < SHORTEST {
        return Some(format!(
            "a secret of {count} characters is too weak; use 32 random ones, as from `openssl rand -hex 16`"
        ));
    }
    let first = secret.chars().next();
    let same = secret.chars().all(|c| Some(c) == first);
    same.then(|| "a secret of one repeated character is too weak; use `openssl rand -hex 16`".to_owned())
}

impl Planner {
    /// Refuses weak secrets and secrets shared by sources of different kinds. Returns warnings for the risky ones.
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
                    if let Some(why) = weakness(secret) {
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
                            "the sources {one:?} and {two:?} have the same secret, so each accepts messages signed for the other; use different secrets"
                        ));
                    } else {
                        let what = format!(
                            "the source {one:?} has the same secret and another format or verification, so a sender of one can impersonate the other; use different secrets"
                        );
                        self.wrong(at, what);
                    }
                }
            }
        }
        // A handler that knows the secret of a source can send it forged messages.
        for inbox in file.inbox.values() {
            for (key, handler) in &inbox.handler {
                for secret in many(handler.secret.as_ref(), 0).0 {
                    let Some(read) = self.read_again(secret) else { continue };
                    if let Some((_, source)) = known.get(&read) {
                        let (key, source) = (key.as_str(), &source.name);
                        warnings.push(format!(
                            "the handler {key:?} and the source {source:?} have the same secret, so the handler can forge messages; use different secrets"
                        ));
                    }
                }
            }
        }
        warnings
    }

    /// Reads a secret again. Its problems were reported before.
    fn read_again(&self, secret: &SecretRef) -> Option<String> {
        (self.secrets == Secrets::Read).then(|| secret.read().ok()).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weak_secrets_are_refused() {
        for bad in ["", "x", "1234567", "aaaaaaaaaaaaaaaaaaaaaaaa", "äöüäöüä"] {
            assert!(weakness(bad).is_some(), "{bad:?}");
        }
        assert_eq!(weakness("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"), None);
    }
}
