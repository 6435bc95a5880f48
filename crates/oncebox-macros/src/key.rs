//! Handler keys, checked by the rules of `oncebox::HandlerKey`.

use syn::{Error, LitStr};

/// Maximum bytes of a handler key.
const MAX_NAME: usize = 200;

/// Refuses a text that cannot be a handler key.
pub(crate) fn check(key: &LitStr) -> Result<(), Error> {
    let text = key.value();
    why_not(&text).map_or(Ok(()), |why| {
        let start: String = text.chars().take(40).collect();
        Err(Error::new(key.span(), format!("the handler key {start:?} {why}")))
    })
}

/// Returns the problem of a key. The library uses the same words for keys that are set in code.
fn why_not(name: &str) -> Option<String> {
    if name.is_empty() {
        return Some("is empty".into());
    }
    if name.len() > MAX_NAME {
        return Some(format!("has {} bytes, the limit is {MAX_NAME}", name.len()));
    }
    let strange = name.chars().find(|c| !(c.is_ascii_alphanumeric() || "-_.:/".contains(*c)));
    strange.map(|c| format!("holds {c:?}; letters, digits and - _ . : / are allowed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_and_the_attribute_agree_on_every_key() {
        let mut keys: Vec<String> = (0..0x250).filter_map(char::from_u32).map(|c| format!("a{c}b")).collect();
        keys.extend([0, 1, MAX_NAME - 1, MAX_NAME, MAX_NAME + 1].map(|length| "x".repeat(length)));
        keys.extend(["shop/ship-order.v2".into(), "\u{1F980}".into(), " a".into(), "a\0".into()]);
        for key in keys {
            let library = oncebox::HandlerKey::new(&key).err().map(|error| error.what().to_owned());
            match (why_not(&key), library) {
                (None, None) => {}
                (Some(why), Some(said)) => assert!(said.ends_with(&why), "{said} / {why}"),
                (ours, theirs) => panic!("{key:?}: {ours:?}, but the library says {theirs:?}"),
            }
        }
        assert_eq!(MAX_NAME, oncebox::MAX_NAME);
    }
}
