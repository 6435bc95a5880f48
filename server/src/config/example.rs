//! A configuration with every setting and its meaning.

/// What `oncebox config example` prints. A line that starts with `#` and no blank is a setting that can be switched on.
pub(crate) const EXAMPLE: &str = include_str!("example.toml");
