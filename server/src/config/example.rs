//! The example configuration, with every setting. Tests: `tests/serve/config.rs`.

/// Output of `oncebox config example`. A line that starts with `#` and no space is a setting to enable.
pub(crate) const EXAMPLE: &str = include_str!("example.toml");
