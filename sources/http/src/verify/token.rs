//! Bearer tokens. Tests: verify/tests.rs and tests/webhooks.rs.

use crate::secret::{Blind, SecretBytes, refused};
use crate::verify::Proof;
use oncebox::Result;

/// Tokens, all equally valid.
#[derive(Clone, Debug)]
pub(super) struct BearerTokens {
    tokens: Vec<SecretBytes>,
    blind: Blind,
}

impl BearerTokens {
    pub(super) fn new<T: AsRef<str>>(tokens: impl IntoIterator<Item = T>) -> Result<Self> {
        let secret = |token: T| {
            let token = token.as_ref();
            if token.bytes().any(|b| !b.is_ascii_graphic()) {
                return Err(refused(
                    "bearer token",
                    "holds what no header can carry: blanks or other than ASCII",
                ));
            }
            SecretBytes::new("bearer token", token.as_bytes())
        };
        let tokens: Vec<SecretBytes> = tokens.into_iter().map(secret).collect::<Result<_>>()?;
        if tokens.is_empty() {
            return Err(refused("bearer token", "is missing: every request would be refused"));
        }
        Ok(Self { tokens, blind: Blind::new()? })
    }

    pub(super) fn holds(&self, proof: &Proof<'_>) -> bool {
        let header = proof.header("authorization").unwrap_or_default();
        let token = match header.split_at_checked(7) {
            Some((scheme, token)) if scheme.eq_ignore_ascii_case(b"bearer ") => token.trim_ascii(),
            _ => b"",
        };
        let fits = |found: bool, known: &SecretBytes| self.blind.equal(known.bytes(), token) | found;
        self.tokens.iter().fold(false, fits)
    }
}
