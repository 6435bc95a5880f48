//! Signs deliveries after Standard Webhooks: an HMAC-SHA256 of id, time and body. Tests: below.

use std::fmt;
use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;

/// Signs with all secrets, so that an operator can replace one without a gap.
#[derive(Clone)]
pub(crate) struct Signer {
    keys: Vec<hmac::Key>,
}

/// Length of a secret in the specification, in bytes.
const LENGTHS: std::ops::RangeInclusive<usize> = 24..=64;

impl Signer {
    /// Parses secrets: `whsec_` and base64. The error never quotes one.
    pub(crate) fn new<T: AsRef<str>>(secrets: impl IntoIterator<Item = T>) -> Result<Self, &'static str> {
        let keys = secrets.into_iter().map(|secret| {
            let text = secret.as_ref().strip_prefix("whsec_").ok_or(
                "a signing secret starts with `whsec_`; create one with: echo whsec_$(openssl rand -base64 32)",
            )?;
            let bytes = STANDARD.decode(text).map_err(|_| "the text after `whsec_` is not base64")?;
            if !LENGTHS.contains(&bytes.len()) {
                return Err("a signing secret has 24 to 64 bytes; create one with: echo whsec_$(openssl rand -base64 32)");
            }
            Ok(hmac::Key::new(hmac::HMAC_SHA256, &bytes))
        });
        Ok(Self { keys: keys.collect::<Result<_, _>>()? })
    }

    /// Returns the headers `webhook-timestamp` and `webhook-signature`; `None` without a secret.
    pub(super) fn sign(&self, id: &str, body: &[u8], now: SystemTime) -> Option<[(&'static str, String); 2]> {
        if self.keys.is_empty() {
            return None;
        }
        let time = now.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs()).to_string();
        let signatures: Vec<String> = self
            .keys
            .iter()
            .map(|key| {
                let mut context = hmac::Context::with_key(key);
                for part in [id.as_bytes(), b".", time.as_bytes(), b".", body] {
                    context.update(part);
                }
                format!("v1,{}", STANDARD.encode(context.sign()))
            })
            .collect();
        Some([("webhook-timestamp", time), ("webhook-signature", signatures.join(" "))])
    }
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Signer({} secrets)", self.keys.len())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// The example of the specification.
    #[test]
    fn signs_as_the_specification_says() {
        let signer = Signer::new(["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"]).unwrap();
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_614_265_330);
        let signed = signer.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", br#"{"test": 2432232314}"#, now).unwrap();
        assert_eq!(signed[0], ("webhook-timestamp", "1614265330".into()));
        assert_eq!(signed[1].1, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    /// I8: while a secret is replaced, both sign.
    #[test]
    fn every_secret_signs() {
        let [old, new] = ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"];
        let now = SystemTime::UNIX_EPOCH;
        let of =
            |secrets: &[&str]| Signer::new(secrets).unwrap().sign("id", b"body", now).unwrap()[1].1.clone();
        assert_eq!(of(&[new, old]), format!("{} {}", of(&[new]), of(&[old])));
        assert_eq!(Signer::new::<&str>([]).unwrap().sign("id", b"body", now), None);
    }

    #[test]
    fn bad_secrets_are_refused_and_never_shown() {
        for bad in ["hunter2-hunter2-hunter2", "whsec_hunter2!", "whsec_aHVudGVyMg=="] {
            let why = Signer::new([bad]).unwrap_err();
            assert!(!why.contains("hunter2") && !why.contains("aHVudGVyMg"), "{why}");
        }
        let signer = Signer::new(["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"]).unwrap();
        assert_eq!(format!("{signer:?}"), "Signer(1 secrets)");
    }
}
