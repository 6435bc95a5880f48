//! Arguments that select an inbox, a message or entries. Tests: `tests/operate/`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use anyhow::anyhow;
use oncebox::state::Status;
use oncebox::store::OperationId;
use oncebox::time::Timestamp;
use oncebox::{HandlerKey, InboxName, Key, KeyStrategy};

use super::CommandError;
use super::api_client::ApiClient;
use crate::cli::Exit;
use crate::cli::out;
use crate::config::{self, InboxPlan, SealPlan, Secrets, StorePlan};
use crate::operator::wire::{self, BoundedText, StatusWord, TimeText};
use crate::operator::{OperatorClient, OperatorError, RequestWords, StoreClient};
use crate::sidecar;

/// Maximum time of a search for a message by its id.
const SEARCH: Duration = Duration::from_secs(10);
/// Maximum sources that an error for an ambiguous id lists.
const MAX_SOURCES: usize = 5;

/// Words of the command line in errors of its requests.
const FLAGS: RequestWords = RequestWords {
    actor: "the actor is missing; set --actor or ONCEBOX_ACTOR for the audit log",
    everything: "add a filter, or --everything",
    unknown: "--unknown",
};

/// Arguments for the inbox: an API, a store, or a configuration. Default: `ONCEBOX_API`, `ONCEBOX_STORE`, `ONCEBOX_CONFIG`, then
/// `oncebox.toml` in the current directory.
#[expect(clippy::doc_markdown, reason = "clap prints the texts as they are")]
#[derive(Debug, clap::Args)]
pub(super) struct TargetArgs {
    /// Address of a running sidecar, like http://127.0.0.1:8472
    #[arg(long, value_name = "URL", conflicts_with_all = ["store", "config"])]
    api: Option<String>,
    /// API token: env:NAME or file:PATH [default: env:ONCEBOX_TOKEN]
    #[arg(long, value_name = "WHERE")]
    token: Option<String>,
    /// Database: sqlite:FILE, postgres:// URL, env:NAME or file:PATH
    #[arg(long, value_name = "URL", conflicts_with = "config")]
    store: Option<String>,
    /// PostgreSQL schema of the tables [default: public]
    #[arg(long, requires = "store")]
    schema: Option<String>,
    /// Prefix of the table names in PostgreSQL [default: oncebox_]
    #[arg(long, requires = "store")]
    prefix: Option<String>,
    /// Config file that names the store and handlers [default: ./oncebox.toml]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Inbox name; optional if the config file has only one
    #[arg(long, value_parser = inbox)]
    inbox: Option<InboxName>,
    /// Print JSON, one object per line
    #[arg(long)]
    pub(super) json: bool,
}

fn inbox(text: &str) -> Result<InboxName, String> {
    InboxName::new(text).map_err(|error| error.what().to_owned())
}

pub(super) fn handler(text: &str) -> Result<HandlerKey, String> {
    HandlerKey::new(text).map_err(|error| error.what().to_owned())
}

/// Returns an error for a command line that is not valid.
pub(super) fn usage(what: impl Into<String>) -> CommandError {
    Exit::Usage.with(anyhow!(what.into()))
}

/// Resolved location of an inbox.
pub(super) enum Target {
    Api(String),
    Store(StorePlan),
    Config(StorePlan, Box<InboxPlan>),
}

impl TargetArgs {
    /// Returns the location from the flags, the environment or the current directory, in that order.
    fn find(&self) -> Result<Target, CommandError> {
        let var = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let none = self.api.is_none() && self.store.is_none() && self.config.is_none();
        let api = self.api.clone().or_else(|| var("ONCEBOX_API").filter(|_| none));
        if let Some(url) = api {
            return Ok(Target::Api(url));
        }
        let store = self.store.clone().or_else(|| var("ONCEBOX_STORE").filter(|_| none));
        if let Some(url) = store {
            let named = self.store.is_none() && !url.starts_with("env:") && !url.starts_with("file:");
            // A URL in the environment may contain a password: other users cannot read it there.
            let url = if named { "env:ONCEBOX_STORE" } else { &url };
            let plan = config::store_at(url, self.schema.as_deref(), self.prefix.as_deref());
            return plan.map(Target::Store).map_err(usage);
        }
        let named = self.config.clone().or_else(|| var("ONCEBOX_CONFIG").map(Into::into));
        let path = config::find(named.as_deref()).ok_or_else(|| {
            usage("no inbox selected; set --api URL, --store sqlite:FILE or env:NAME, or --config FILE")
        })?;
        let mut plan = config::load(&path, Secrets::Stores)?.plan;
        let known = plan.inboxes.iter().map(|inbox| inbox.name.clone()).collect::<Vec<_>>().join(", ");
        let wanted = |inbox: &InboxPlan| self.inbox.as_ref().is_none_or(|name| name.as_str() == inbox.name);
        plan.inboxes.retain(wanted);
        if plan.inboxes.len() > 1 {
            return Err(usage(format!("several inboxes are configured; name one with --inbox: {known}")));
        }
        let inbox = plan.inboxes.pop();
        let inbox =
            inbox.ok_or_else(|| usage(format!("{} has no such inbox; it has {known}", path.display())))?;
        let store = plan.stores.into_iter().find(|store| store.name == inbox.store);
        let store = store.ok_or_else(|| usage(format!("the store {:?} is not configured", inbox.store)))?;
        Ok(Target::Config(store, Box::new(inbox)))
    }

    /// Returns the inbox and its location.
    pub(super) fn resolve(&self) -> Result<(InboxName, Target), CommandError> {
        let found = self.find()?;
        let name = match (&self.inbox, &found) {
            (Some(name), _) => name.clone(),
            (None, Target::Config(_, plan)) => InboxName::new(&*plan.name)?,
            (None, _) => {
                return Err(usage(
                    "the inbox is missing; name it with --inbox (`oncebox serve` prints it at start; default: messages)",
                ));
            }
        };
        Ok((name, found))
    }

    /// Opens the inbox.
    pub(super) async fn open(&self) -> Result<Box<dyn OperatorClient>, CommandError> {
        let (inbox, found) = self.resolve()?;
        let (store, plan) = match found {
            Target::Api(url) => return Ok(Box::new(ApiClient::new(&url, self.token.as_deref(), inbox)?)),
            Target::Store(store) => (store, None),
            Target::Config(store, plan) => (store, Some(plan)),
        };
        if self.token.is_some() {
            return Err(usage("--token requires --api"));
        }
        let opened = sidecar::open_admin(&store).await.map_err(cannot_open)?;
        if let Some(why) = store.seal.as_ref().and_then(SealPlan::locked) {
            out::eprint_note(&format!("sealed content is hidden: {why}"));
        }
        Ok(Box::new(StoreClient::new(opened, inbox, plan.map(Into::into), &FLAGS)))
    }

    /// Returns the key of an id, for inboxes that use ids as keys.
    fn key_of(&self, id: &str, source: Option<&str>, tenant: Option<&str>) -> Result<Key, CommandError> {
        let (inbox, _) = self.resolve()?;
        let message = oncebox::Message::new(id.to_owned(), "", "").with_source(source.unwrap_or_default());
        let message = match tenant {
            None => message,
            Some(tenant) => message.with_tenant(tenant),
        };
        KeyStrategy::MessageId.key(&inbox, &message).map_err(|error| usage(format!("--id: {}", error.what())))
    }
}

pub(super) fn cannot_open(error: oncebox::Error) -> CommandError {
    Exit::Start.with(anyhow::Error::new(error).context("cannot open the store"))
}

/// Arguments for one message.
#[derive(Debug, clap::Args)]
pub(super) struct MessageArgs {
    /// Message key, 64 hexadecimal digits
    #[arg(long, value_parser = key)]
    key: Option<Key>,
    /// Message id, with --source; not for inboxes with another key strategy
    #[arg(long, conflicts_with = "key")]
    id: Option<String>,
}

fn key(text: &str) -> Result<Key, String> {
    Key::parse(text).ok_or_else(|| "a key has 64 hexadecimal digits".to_owned())
}

impl MessageArgs {
    /// Returns the key of the message, if the arguments select one. `source` and `tenant` belong to the id.
    pub(super) fn find(
        &self,
        target: &TargetArgs,
        source: Option<&str>,
        tenant: Option<&str>,
    ) -> Result<Option<Key>, CommandError> {
        match (&self.key, &self.id) {
            (Some(key), _) => Ok(Some(*key)),
            (None, Some(id)) => target.key_of(id, source, tenant).map(Some),
            (None, None) => Ok(None),
        }
    }
}

impl MessageArgs {
    /// Returns true if the arguments select one message.
    pub(super) fn is_given(&self) -> bool {
        self.key.is_some() || self.id.is_some()
    }
}

/// Adds a hint to a not-found error: an id belongs to a source, and messages of a sidecar always have one.
pub(super) fn not_found(failed: OperatorError, id: &MessageArgs, source: Option<&str>) -> CommandError {
    let known = id.id.is_none() || source.is_some() || !failed.is_not_found();
    let failed = CommandError::from(failed);
    if known {
        return failed;
    }
    failed.context("without --source, only messages without a source match; add it, or use --key".to_owned())
}

/// Arguments for one message, with the source and tenant of its id.
#[derive(Debug, clap::Args)]
pub(super) struct OneMessageArgs {
    #[command(flatten)]
    message: MessageArgs,
    /// Source of the message with --id
    #[arg(long, requires = "id", conflicts_with = "key")]
    source: Option<String>,
    /// Tenant of the message with --id
    #[arg(long, requires = "id", conflicts_with = "key")]
    tenant: Option<String>,
}

impl OneMessageArgs {
    /// Returns the key, if the arguments select a message.
    pub(super) fn find(&self, target: &TargetArgs) -> Result<Option<Key>, CommandError> {
        self.message.find(target, self.source.as_deref(), self.tenant.as_deref())
    }

    /// Adds a hint to a not-found error.
    pub(super) fn not_found(&self, failed: OperatorError) -> CommandError {
        not_found(failed, &self.message, self.source.as_deref())
    }

    /// Returns the key for a command that only reads. An id without a source selects the only message with that id.
    pub(super) async fn key_to_read(
        &self,
        target: &TargetArgs,
        client: &dyn OperatorClient,
    ) -> Result<Key, CommandError> {
        let key = self.key(target)?;
        let (Some(id), None) = (self.message.id.as_deref(), &self.source) else { return Ok(key) };
        match client.message(&key).await {
            Ok(_) => Ok(key),
            Err(failed) if failed.is_not_found() => {
                let found = self.search(client, id).await?;
                found.ok_or_else(|| self.not_found(failed))
            }
            Err(failed) => Err(failed.into()),
        }
    }

    /// Searches the entries for the only message with an id. Gives up after [`SEARCH`].
    async fn search(&self, client: &dyn OperatorClient, id: &str) -> Result<Option<Key>, CommandError> {
        let text = |text: &str| Some(BoundedText::from(text));
        let (id_contains, tenant) = (text(id), self.tenant.as_deref().and_then(text));
        let mut query =
            wire::EntriesQuery { id_contains, tenant, limit: Some(1_000), ..wire::EntriesQuery::default() };
        let (start, mut found) = (Instant::now(), BTreeMap::new());
        loop {
            let page = client.entries(&query).await?;
            for entry in page.entries {
                let same = |one: &wire::MessageIdentity| one.id == id && one.id_hex.is_none();
                if let Some(message) = entry.message.filter(same) {
                    found.insert(entry.key.0, message.source);
                }
            }
            match page.next {
                None => break,
                Some(_) if start.elapsed() >= SEARCH => return Ok(None),
                Some(next) => query.after = text(&next),
            }
        }
        if found.len() > 1 {
            let sources = found.values().collect::<BTreeSet<_>>().into_iter().take(MAX_SOURCES);
            let sources = sources.map(|source| format!("{source:?}")).collect::<Vec<_>>().join(", ");
            let count = found.len();
            return Err(usage(format!(
                "{count} messages have this id, with sources like {sources}; add --source, or use --key"
            )));
        }
        let only = found.pop_first();
        Ok(only.map(|(key, source)| {
            out::eprint_note(&format!("without --source: the only message with this id, from {source:?}"));
            key
        }))
    }

    /// Returns the key, or an error if the arguments select no message.
    pub(super) fn key(&self, target: &TargetArgs) -> Result<Key, CommandError> {
        self.find(target)?.ok_or_else(|| usage("no message selected; set --key, or --id and --source"))
    }
}

/// Arguments for the audit log.
#[derive(Debug, clap::Args)]
pub(super) struct ActorArgs {
    /// Actor for the audit log [default with --api: the token name]
    #[arg(long, env = "ONCEBOX_ACTOR")]
    actor: Option<String>,
    /// Reason for the audit log
    #[arg(long)]
    reason: String,
    /// Operation id; repeating it runs once or continues [default: a new one]
    #[arg(long, value_name = "UUID")]
    operation: Option<OperationId>,
}

impl ActorArgs {
    pub(super) fn id(&self) -> wire::OperationUuid {
        wire::OperationUuid(self.operation.unwrap_or_else(OperationId::fresh))
    }

    pub(super) fn actor(&self) -> Option<BoundedText> {
        self.actor.as_deref().map(Into::into)
    }

    pub(super) fn reason(&self) -> Result<wire::Reason, CommandError> {
        if self.reason.trim().is_empty() {
            return Err(usage("--reason is empty; state the reason for the audit log"));
        }
        Ok(wire::Reason(self.reason.clone()))
    }
}

/// Arguments of a filter for entries.
#[derive(Debug, clap::Args)]
pub(super) struct EntryFilterArgs {
    /// Status; repeatable
    #[arg(long = "status", value_name = "STATUS", value_parser = status)]
    statuses: Vec<Status>,
    /// Handler key
    #[arg(long, value_parser = handler)]
    pub(super) handler: Option<HandlerKey>,
    /// Message type
    #[arg(long = "type", value_name = "TYPE")]
    kind: Option<String>,
    /// Source of the message
    #[arg(long)]
    pub(super) source: Option<String>,
    /// Tenant of the message
    #[arg(long)]
    pub(super) tenant: Option<String>,
    /// Message id contains TEXT
    #[arg(long, value_name = "TEXT")]
    id_contains: Option<String>,
    /// Ordering key of the message
    #[arg(long, value_name = "KEY")]
    ordering_key: Option<String>,
    /// Received at or after TIME, like 2026-01-31 or 2026-01-31T12:00:00Z (UTC)
    #[arg(long, value_name = "TIME", value_parser = time)]
    since: Option<Timestamp>,
    /// Received before TIME
    #[arg(long, value_name = "TIME", value_parser = time)]
    before: Option<Timestamp>,
    /// Last error contains TEXT (literal match)
    #[arg(long, value_name = "TEXT")]
    error: Option<String>,
}

fn status(text: &str) -> Result<Status, String> {
    let all = Status::ALL.map(Status::as_str).join(", ");
    Status::ALL.into_iter().find(|one| one.as_str() == text).ok_or_else(|| format!("use one of {all}"))
}

/// Parses a time, or a day as its beginning.
fn time(text: &str) -> Result<Timestamp, String> {
    let day = || humantime::parse_rfc3339(&format!("{text}T00:00:00Z"));
    let time: Result<SystemTime, _> = humantime::parse_rfc3339_weak(text).or_else(|_| day());
    time.map(Into::into).map_err(|_| "write it like 2026-01-31T12:00:00Z or 2026-01-31, in UTC".into())
}

/// Builds a wire filter from the arguments, with further fields.
macro_rules! filled {
    ($which:ident, $name:ident { $($more:tt)* }) => {{
        let text = |text: &Option<String>| text.as_deref().map(BoundedText::from);
        wire::$name {
            status: $which.statuses.iter().copied().map(StatusWord).collect(),
            handler: $which.handler.as_ref().map(|handler| handler.as_str().into()),
            message_type: text(&$which.kind),
            source: text(&$which.source),
            tenant: text(&$which.tenant),
            id_contains: text(&$which.id_contains),
            ordering_key: text(&$which.ordering_key),
            since: $which.since.map(TimeText),
            before: $which.before.map(TimeText),
            error: text(&$which.error),
            $($more)*
        }
    }};
}

impl EntryFilterArgs {
    pub(super) fn wire(&self) -> wire::EntrySelection {
        filled!(self, EntrySelection {})
    }

    pub(super) fn query(&self, after: Option<&str>, limit: usize) -> wire::EntriesQuery {
        filled!(self, EntriesQuery { after: after.map(BoundedText::from), limit: Some(limit as u64) })
    }

    /// Returns true if a condition is set that does not belong to the id of one message.
    pub(super) fn is_filter(&self) -> bool {
        let Self { statuses, kind, id_contains, ordering_key, since, before, error, .. } = self;
        !statuses.is_empty()
            || kind.is_some()
            || id_contains.is_some()
            || ordering_key.is_some()
            || since.is_some()
            || before.is_some()
            || error.is_some()
    }
}
