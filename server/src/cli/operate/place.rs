//! Which store, which inbox, which message, which entries.

use std::path::Path;
use std::time::SystemTime;

use anyhow::anyhow;
use oncebox::state::Status;
use oncebox::store::{Admin, Filter};
use oncebox::time::Timestamp;
use oncebox::{Error, ErrorKind, HandlerKey, InboxName, Key, KeyStrategy};
use oncebox_postgres::Postgres;
use oncebox_sqlite::Sqlite;

/// An error with its exit code.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) code: u8,
    pub(super) error: anyhow::Error,
}

impl Failed {
    pub(super) fn usage(error: impl Into<anyhow::Error>) -> Self {
        Self { code: 2, error: error.into() }
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        let code = match error.kind() {
            ErrorKind::NotFound | ErrorKind::Refused | ErrorKind::OperationReused => 5,
            ErrorKind::InvalidConfig => 2,
            _ => 4,
        };
        Self { code, error: error.into() }
    }
}

/// Where to look.
#[derive(Debug, clap::Args)]
pub(super) struct Place {
    /// The store: `sqlite:FILE`, or a `postgres://` URL.
    #[arg(long, value_name = "URL")]
    pub(super) store: String,
    /// The inbox.
    #[arg(long, value_parser = inbox)]
    pub(super) inbox: InboxName,
    /// One JSON object a line, for programs.
    #[arg(long)]
    pub(super) json: bool,
}

fn inbox(text: &str) -> Result<InboxName, String> {
    InboxName::new(text).map_err(|error| error.what().to_owned())
}

pub(super) fn handler(text: &str) -> Result<HandlerKey, String> {
    HandlerKey::new(text).map_err(|error| error.what().to_owned())
}

/// Opens the store. Its tables are never made or changed from here.
pub(super) async fn opened(place: &Place) -> Result<Box<dyn Admin>, Failed> {
    let cannot = |error: Error| Failed { code: 3, error: anyhow!("cannot open the store: {error}") };
    if let Some(path) = place.store.strip_prefix("sqlite:") {
        if !Path::new(path).exists() {
            return Err(Failed {
                code: 3,
                error: anyhow!("cannot open the store: there is no file {path:?}"),
            });
        }
        return Ok(Box::new(Sqlite::options(path).migrate(false).open().map_err(cannot)?));
    }
    if place.store.starts_with("postgres://") || place.store.starts_with("postgresql://") {
        let options = Postgres::options(&place.store).map_err(cannot)?;
        return Ok(Box::new(options.migrate(false).open().await.map_err(cannot)?));
    }
    // Not repeated: it may hold a password.
    Err(Failed::usage(anyhow!("--store is neither `sqlite:FILE` nor a `postgres://` URL")))
}

/// One message.
#[derive(Debug, clap::Args)]
pub(super) struct Message {
    /// Its key, as lists show it.
    #[arg(long, value_parser = key)]
    pub(super) key: Option<Key>,
    /// Its id, for inboxes that go by ids.
    #[arg(long, conflicts_with = "key")]
    pub(super) id: Option<String>,
}

fn key(text: &str) -> Result<Key, String> {
    Key::parse(text).ok_or_else(|| "a key has 64 hexadecimal digits".to_owned())
}

impl Message {
    /// The key of the message that is named; `source` and `tenant` go with the id.
    pub(super) fn find(&self, place: &Place, source: Option<&str>, tenant: Option<&str>) -> Option<Key> {
        let by_id = |id: &String| {
            let message = oncebox::Message::new(id.clone(), "", "").with_source(source.unwrap_or_default());
            let message = match tenant {
                None => message,
                Some(tenant) => message.with_tenant(tenant),
            };
            KeyStrategy::MessageId.key(&place.inbox, &message).ok()
        };
        self.key.or_else(|| self.id.as_ref().and_then(by_id))
    }
}

/// Which entries.
#[derive(Debug, clap::Args)]
pub(super) struct Which {
    /// With this status; can be given several times.
    #[arg(long = "status", value_name = "STATUS", value_parser = status)]
    statuses: Vec<Status>,
    /// Of this handler.
    #[arg(long, value_parser = handler)]
    handler: Option<HandlerKey>,
    /// Of messages of this type.
    #[arg(long = "type", value_name = "TYPE")]
    kind: Option<String>,
    /// Of messages from this source.
    #[arg(long)]
    pub(super) source: Option<String>,
    /// Of messages of this tenant.
    #[arg(long)]
    pub(super) tenant: Option<String>,
    /// Of messages whose id holds this.
    #[arg(long, value_name = "TEXT")]
    id_contains: Option<String>,
    /// Of messages with this ordering key.
    #[arg(long, value_name = "KEY")]
    ordering_key: Option<String>,
    /// Of messages that came at this time or later, as in 2026-01-31T12:00:00Z.
    #[arg(long, value_name = "TIME", value_parser = time)]
    since: Option<Timestamp>,
    /// Of messages that came before this time.
    #[arg(long, value_name = "TIME", value_parser = time)]
    before: Option<Timestamp>,
    /// Whose last error holds this; no character means anything else.
    #[arg(long, value_name = "TEXT")]
    error: Option<String>,
}

fn status(text: &str) -> Result<Status, String> {
    let all = Status::ALL.map(Status::as_str).join(", ");
    Status::ALL.into_iter().find(|one| one.as_str() == text).ok_or_else(|| format!("use one of {all}"))
}

fn time(text: &str) -> Result<Timestamp, String> {
    let time: Result<SystemTime, _> = humantime::parse_rfc3339_weak(text);
    time.map(Into::into).map_err(|error| error.to_string())
}

impl Which {
    pub(super) fn filter(&self, place: &Place) -> Filter {
        let mut filter = Filter::any(place.inbox.clone());
        filter.statuses.clone_from(&self.statuses);
        filter.handler.clone_from(&self.handler);
        filter.kind = self.kind.as_deref().map(Into::into);
        filter.source = self.source.as_deref().map(Into::into);
        filter.tenant = self.tenant.as_deref().map(Into::into);
        filter.id_contains = self.id_contains.as_ref().map(|id| id.as_bytes().into());
        filter.ordering_key = self.ordering_key.as_ref().map(|key| key.as_bytes().into());
        filter.received_from = self.since;
        filter.received_before = self.before;
        filter.error_contains = self.error.as_deref().map(Into::into);
        filter
    }
}
