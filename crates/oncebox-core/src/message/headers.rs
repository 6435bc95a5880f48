//! Transport headers: ordered, repeatable, with any bytes as values.

use bytes::Bytes;

use crate::error::{Error, ErrorKind, Result};

/// Headers of a message, in the order of arrival.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headers(Vec<(Box<str>, Bytes)>);

impl Headers {
    /// Appends a header.
    pub fn push(&mut self, name: impl Into<Box<str>>, value: impl Into<Bytes>) {
        self.0.push((name.into(), value.into()));
    }

    /// Replaces all values of `name` with one.
    pub fn set(&mut self, name: &str, value: Option<&str>) {
        let is = |(found, _): &(Box<str>, Bytes)| found.eq_ignore_ascii_case(name);
        let first = self.0.iter().position(is).unwrap_or(self.0.len());
        self.0.retain(|header| !is(header));
        if let Some(value) = value {
            self.0.insert(first, (name.into(), Bytes::copy_from_slice(value.as_bytes())));
        }
    }

    /// Returns the first value of `name`. Names ignore case.
    pub fn get(&self, name: &str) -> Option<&Bytes> {
        self.0.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// Returns all headers, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Bytes)> {
        self.0.iter().map(|(name, value)| (&**name, value))
    }

    /// Returns true if there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the bytes of all names and values together.
    pub fn size(&self) -> usize {
        self.0.iter().map(|(name, value)| name.len() + value.len()).sum()
    }

    /// Returns one byte string for a store to keep: each name and value after its length. Empty without headers.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.size() + 8 * self.0.len());
        for (name, value) in &self.0 {
            for part in [name.as_bytes(), value] {
                let len = u32::try_from(part.len()).unwrap_or(u32::MAX);
                out.extend_from_slice(&len.to_le_bytes());
                out.extend_from_slice(part);
            }
        }
        out
    }

    /// Reads the output of [`encode`](Self::encode).
    pub fn decode(mut bytes: &[u8]) -> Result<Self> {
        let mut headers = Self::default();
        while !bytes.is_empty() {
            let (name, rest) = take(bytes)?;
            let (value, rest) = take(rest)?;
            let name = std::str::from_utf8(name).map_err(|_| corrupt())?;
            headers.push(name, Bytes::copy_from_slice(value));
            bytes = rest;
        }
        Ok(headers)
    }
}

fn take(bytes: &[u8]) -> Result<(&[u8], &[u8])> {
    let (len, rest) = bytes.split_first_chunk::<4>().ok_or_else(corrupt)?;
    let len = u32::from_le_bytes(*len) as usize;
    rest.split_at_checked(len).ok_or_else(corrupt)
}

fn corrupt() -> Error {
    Error::new(ErrorKind::Corrupt, "stored headers do not decode")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn survive_storage(pairs in proptest::collection::vec((".{0,12}", proptest::collection::vec(any::<u8>(), 0..20)), 0..6)) {
            let mut headers = Headers::default();
            for (name, value) in pairs {
                headers.push(name, value);
            }
            prop_assert_eq!(Headers::decode(&headers.encode()).unwrap(), headers);
        }

        #[test]
        fn damage_is_an_error_not_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _ = Headers::decode(&bytes);
        }
    }
}
