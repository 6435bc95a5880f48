//! Checks secrets: too short, or shared by several senders. Tests: below and `tests/serve/config/secrets.rs`.

use std::collections::BTreeMap;

use oncebox_http::{SecretStrength, secret_forms, secret_strength};

use super::api::ApiPlan;
use super::model::ConfigFile;
use super::plan::{InboxPlan, Planner, Secrets};
use super::sources::HttpPlan;
use super::value::{Located, SecretRef, many};
use crate::api::access;

/// Returns the reason to refuse a weak secret, if any.
fn weakness(secret: &str) -> Option<String> {
    let what = match secret_strength(secret.as_bytes()) {
        SecretStrength::Good | SecretStrength::Short => return None,
        SecretStrength::Shortest if secret.starts_with("whsec_") => {
            "a secret of fewer than 8 bytes behind `whsec_` is too weak; use 32 random ones, as from `openssl rand -base64 32`".into()
        }
        SecretStrength::Shortest => format!(
            "a secret of {} characters is too weak; use 32 random ones, as from `openssl rand -hex 16`",
            secret.chars().count()
        ),
        SecretStrength::Repeated => {
            "a secret of one repeated character is too weak; use `openssl rand -hex 16`".into()
        }
    };
    Some(what)
}

impl Planner {
    /// Refuses weak secrets and secrets shared by sources of different kinds. Returns warnings for the risky ones.
    pub(super) fn check_secrets(
        &mut self,
        file: &ConfigFile,
        inboxes: &[InboxPlan],
        api: Option<&ApiPlan>,
    ) -> Vec<String> {
        let mut warnings = Vec::new();
        let mut known: BTreeMap<Box<[u8]>, (&str, &HttpPlan)> = BTreeMap::new();
        let tokens = api.map_or(&[][..], |api| &api.access.tokens);
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
                    let source = &http.name;
                    if secret_strength(secret.as_bytes()) == SecretStrength::Short {
                        warnings.push(format!("a secret of the source {source:?} has fewer than 16 characters; use 32 random ones"));
                    }
                    let hash = access::hash(secret.as_bytes());
                    if let Some(token) = tokens.iter().find(|token| token.hash == hash) {
                        let name = &token.name;
                        self.wrong(
                            at,
                            format!("the API token {name:?} is the same secret, so a sender can act as an operator; use different secrets"),
                        );
                    }
                    let forms = secret_forms(secret.as_bytes()).into_iter();
                    let others = forms.map(|form| known.insert(form, (&plan.name, http)));
                    // All forms must be known, whichever is found first.
                    let others: Vec<_> = others.collect();
                    let Some((inbox, other)) = others.into_iter().flatten().next() else { continue };
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
                    let forms = secret_forms(read.as_bytes());
                    if let Some((_, source)) = forms.iter().find_map(|form| known.get(form)) {
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
        for bad in ["", "x", "1234567", "aaaaaaaaaaaaaaaaaaaaaaaa", "äöüäöüä", "whsec_", "whsec_c2hvcnQ="]
        {
            assert!(weakness(bad).is_some(), "{bad:?}");
        }
        assert_eq!(weakness("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"), None);
        assert_eq!(weakness("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"), None);
    }
}
