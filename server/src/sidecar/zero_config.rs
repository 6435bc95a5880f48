//! The start without a config file: one store, one inbox, and an optional handler. Tests: below and `tests/serve/zero_config.rs`.

use anyhow::{Context as _, Result, bail};
use oncebox_postgres::Postgres;

use crate::config::{API_LISTEN, DATABASE, INBOX, LISTEN, Loaded, Secrets};

/// Settings from the command line.
#[derive(Debug)]
pub(crate) struct ZeroConfig {
    /// Handler URL for all messages.
    pub(crate) to: Option<String>,
    /// URL of the database.
    pub(crate) store: Option<String>,
    /// Lease of a delivery. Default: 30 s.
    pub(crate) lease: Option<String>,
}

impl ZeroConfig {
    /// Loads the settings as if they were a config file.
    pub(super) fn load(&self) -> Result<Loaded> {
        let store = self.store.clone().unwrap_or_else(|| format!("sqlite:{DATABASE}"));
        if Postgres::url_has_password(&store) {
            bail!(
                "--store contains a password, and every user of this machine can read command lines; use --store env:NAME"
            );
        }
        let mut file = toml::Table::new();
        file.insert("listen".into(), LISTEN.into());
        // A handler on the command line is trusted, whatever its address.
        file.insert("allow_private".into(), true.into());
        file.insert("api".into(), table([("listen", API_LISTEN.into())]));
        file.insert("store".into(), table([("main", table([("url", store.into())]))]));
        let mut inbox = toml::Table::new();
        if let Some(lease) = &self.lease {
            inbox.insert("lease".into(), lease.as_str().into());
        }
        if let Some(to) = &self.to {
            // The handler also gets messages that arrived before it existed.
            let handler = table([("url", to.as_str().into()), ("backfill", true.into())]);
            inbox.insert("handler".into(), table([("handler", handler)]));
        }
        // Plain messages at /in/messages, and CloudEvents at /in/events.
        let events = table([("format", "cloudevents".into())]);
        inbox.insert("http".into(), table([(INBOX, table([])), ("events", events)]));
        file.insert("inbox".into(), table([(INBOX, inbox.into())]));
        let text = toml::to_string(&file).context("cannot encode the settings")?;
        Loaded::from_text(text, Secrets::Read)
            .map_err(|error| anyhow::anyhow!("the command line is not valid: {error}"))
    }
}

fn table<const N: usize>(entries: [(&str, toml::Value); N]) -> toml::Value {
    let entries = entries.into_iter().map(|(key, value)| (key.to_owned(), value));
    toml::Value::Table(entries.collect())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_lease_of_the_command_line_counts() {
        for (flag, seconds) in [(None, 30), (Some("7s".to_owned()), 7)] {
            let settings = ZeroConfig { to: None, store: None, lease: flag };
            let plan = settings.load().expect("a good command line").plan;
            assert_eq!(plan.inboxes[0].config.lease, Duration::from_secs(seconds));
        }
    }
}
