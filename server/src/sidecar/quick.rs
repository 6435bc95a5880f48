//! The start without a configuration: one store, one inbox, and perhaps one handler.

use anyhow::{Context as _, Result, bail};
use oncebox_postgres::Postgres;

use crate::config::{API_LISTEN, DATABASE, INBOX, LISTEN, Loaded, Secrets};

/// What the command line says.
#[derive(Debug)]
pub(crate) struct Quick {
    /// Where everything is delivered to.
    pub(crate) to: Option<String>,
    /// The database.
    pub(crate) store: Option<String>,
    /// How long a dead process keeps its messages.
    pub(crate) lease: Option<String>,
}

impl Quick {
    /// The same as a configuration would be: what works here works there.
    pub(super) fn load(&self) -> Result<Loaded> {
        let store = self.store.clone().unwrap_or_else(|| format!("sqlite:{DATABASE}"));
        if Postgres::url_has_password(&store) {
            bail!(
                "--store holds a password, and everybody on this machine can read command lines; use --store env:NAME"
            );
        }
        let mut file = toml::Table::new();
        file.insert("listen".into(), LISTEN.into());
        // Who names a handler on the command line of this machine means it, wherever it is.
        file.insert("allow_private".into(), true.into());
        file.insert("api".into(), table([("listen", API_LISTEN.into())]));
        file.insert("store".into(), table([("main", table([("url", store.into())]))]));
        let mut inbox = toml::Table::new();
        if let Some(lease) = &self.lease {
            inbox.insert("lease".into(), lease.as_str().into());
        }
        if let Some(to) = &self.to {
            // What was sent before there was a handler is meant for it.
            let handler = table([("url", to.as_str().into()), ("backfill", true.into())]);
            inbox.insert("handler".into(), table([("handler", handler)]));
        }
        // Plain messages at /in/messages, and CloudEvents at /in/events.
        let events = table([("format", "cloudevents".into())]);
        inbox.insert("http".into(), table([(INBOX, table([])), ("events", events)]));
        file.insert("inbox".into(), table([(INBOX, inbox.into())]));
        let text = toml::to_string(&file).context("cannot put the settings together")?;
        Loaded::quick(text, Secrets::Read)
            .map_err(|error| anyhow::anyhow!("the command line is wrong: {error}"))
    }
}

fn table<const N: usize>(entries: [(&str, toml::Value); N]) -> toml::Value {
    let entries = entries.into_iter().map(|(key, value)| (key.to_owned(), value));
    toml::Value::Table(entries.collect())
}
