//! Where to look, which message, which entries.

use std::path::PathBuf;
use std::time::SystemTime;

use anyhow::anyhow;
use oncebox::state::Status;
use oncebox::store::OperationId;
use oncebox::time::Timestamp;
use oncebox::{HandlerKey, InboxName, Key, KeyStrategy};

use super::CommandError;
use super::api_client::ApiClient;
use super::client::OperatorClient;
use super::store_client::StoreClient;
use crate::api::wire::{self, BoundedText, StatusWord, TimeText};
use crate::cli::Exit;
use crate::cli::out;
use crate::config::{self, InboxPlan, SealPlan, Secrets, StorePlan};
use crate::sidecar;

/// Where to look: the API of a process that serves the inbox, a store, or the store that a configuration names. Without any of
/// them: `ONCEBOX_API`, `ONCEBOX_STORE`, `ONCEBOX_CONFIG` of the environment, or `oncebox.toml` in this directory.
#[derive(Debug, clap::Args)]
pub(super) struct TargetArgs {
    /// The address of a process that serves the inbox, like `http://127.0.0.1:8472`. Its token is read from where `--token` says.
    #[arg(long, value_name = "URL", conflicts_with_all = ["store", "config"])]
    api: Option<String>,
    /// Where the token for `--api` is kept: `env:NAME` or `file:PATH`. Default `env:ONCEBOX_TOKEN`, if it is set.
    #[arg(long, value_name = "WHERE")]
    token: Option<String>,
    /// The store itself: `sqlite:FILE`, a `postgres://` URL, or where that is kept: `env:NAME`, `file:PATH`.
    #[arg(long, value_name = "URL", conflicts_with = "config")]
    store: Option<String>,
    /// PostgreSQL: the schema that the tables are in. Default `public`.
    #[arg(long, requires = "store")]
    schema: Option<String>,
    /// PostgreSQL: what the names of the tables start with. Default `oncebox_`.
    #[arg(long, requires = "store")]
    prefix: Option<String>,
    /// A configuration of `oncebox serve`: the store of its inbox is looked at, and its handlers are known.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The inbox. Needed unless a configuration has one alone.
    #[arg(long, value_parser = inbox)]
    inbox: Option<InboxName>,
    /// JSON, one object a line, for programs.
    #[arg(long)]
    pub(super) json: bool,
}

fn inbox(text: &str) -> Result<InboxName, String> {
    InboxName::new(text).map_err(|error| error.what().to_owned())
}

pub(super) fn handler(text: &str) -> Result<HandlerKey, String> {
    HandlerKey::new(text).map_err(|error| error.what().to_owned())
}

/// A wrong command line.
pub(super) fn usage(what: impl Into<String>) -> CommandError {
    Exit::Usage.with(anyhow!(what.into()))
}

/// Where it was found to be.
pub(super) enum Target {
    Api(String),
    Store(StorePlan),
    Config(StorePlan, Box<InboxPlan>),
}

impl TargetArgs {
    /// What the flags say, else the environment, else what is in this directory.
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
            // In the environment nobody reads it who is not meant to.
            let url = if named { "env:ONCEBOX_STORE" } else { &url };
            let plan = config::store_at(url, self.schema.as_deref(), self.prefix.as_deref());
            return plan.map(Target::Store).map_err(usage);
        }
        let named = self.config.clone().or_else(|| var("ONCEBOX_CONFIG").map(Into::into));
        let path = config::find(named.as_deref()).ok_or_else(|| {
            usage("say where to look: --api URL, --store sqlite:FILE or env:NAME, or --config FILE")
        })?;
        let mut plan = config::load(&path, Secrets::Stores)?.plan;
        let known = plan.inboxes.iter().map(|inbox| inbox.name.clone()).collect::<Vec<_>>().join(", ");
        let wanted = |inbox: &InboxPlan| self.inbox.as_ref().is_none_or(|name| name.as_str() == inbox.name);
        plan.inboxes.retain(wanted);
        if plan.inboxes.len() > 1 {
            return Err(usage(format!("name one of the inboxes with --inbox: {known}")));
        }
        let inbox = plan.inboxes.pop();
        let inbox =
            inbox.ok_or_else(|| usage(format!("{} has no such inbox; there are {known}", path.display())))?;
        let store = plan.stores.into_iter().find(|store| store.name == inbox.store);
        let store = store.ok_or_else(|| usage(format!("there is no store {:?}", inbox.store)))?;
        Ok(Target::Config(store, Box::new(inbox)))
    }

    /// The inbox, and where it was found to be.
    pub(super) fn found(&self) -> Result<(InboxName, Target), CommandError> {
        let found = self.find()?;
        let name = match (&self.inbox, &found) {
            (Some(name), _) => name.clone(),
            (None, Target::Config(_, plan)) => InboxName::new(&*plan.name)?,
            (None, _) => {
                return Err(usage(
                    "name the inbox with --inbox; `oncebox serve` tells its name at start, `messages` without a configuration",
                ));
            }
        };
        Ok((name, found))
    }

    /// Goes there.
    pub(super) async fn open(&self) -> Result<Box<dyn OperatorClient>, CommandError> {
        let (inbox, found) = self.found()?;
        let (store, plan) = match found {
            Target::Api(url) => return Ok(Box::new(ApiClient::new(&url, self.token.as_deref(), inbox)?)),
            Target::Store(store) => (store, None),
            Target::Config(store, plan) => (store, Some(plan)),
        };
        if self.token.is_some() {
            return Err(usage("--token goes with --api"));
        }
        let opened = sidecar::open_admin(&store).await.map_err(cannot_open)?;
        if let Some(why) = store.seal.as_ref().and_then(SealPlan::locked) {
            out::eprint_note(&format!("what is sealed is not shown: {why}"));
        }
        Ok(Box::new(StoreClient::new(opened, inbox, plan)))
    }

    /// The key of a message with an id, for inboxes that go by ids.
    fn key_of(&self, id: &str, source: Option<&str>, tenant: Option<&str>) -> Result<Key, CommandError> {
        let (inbox, _) = self.found()?;
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

/// One message.
#[derive(Debug, clap::Args)]
pub(super) struct MessageArgs {
    /// Its key, as lists show it.
    #[arg(long, value_parser = key)]
    key: Option<Key>,
    /// Its id, for inboxes that go by ids; with `--source`, and with `--tenant` if it has one.
    #[arg(long, conflicts_with = "key")]
    id: Option<String>,
}

fn key(text: &str) -> Result<Key, String> {
    Key::parse(text).ok_or_else(|| "a key has 64 hexadecimal digits".to_owned())
}

impl MessageArgs {
    /// The key of the message that is named, if one is; `source` and `tenant` go with the id.
    pub(super) fn find(
        &self,
        place: &TargetArgs,
        source: Option<&str>,
        tenant: Option<&str>,
    ) -> Result<Option<Key>, CommandError> {
        match (&self.key, &self.id) {
            (Some(key), _) => Ok(Some(*key)),
            (None, Some(id)) => place.key_of(id, source, tenant).map(Some),
            (None, None) => Ok(None),
        }
    }
}

/// What was not found, with what is easily forgotten: an id belongs to a source, and sidecars always have one.
pub(super) fn not_found(failed: CommandError, id: &MessageArgs, source: Option<&str>) -> CommandError {
    if id.id.is_none() || source.is_some() || !failed.is_absent() {
        return failed;
    }
    failed.context("without --source only messages that have none are found; add it, or use --key".to_owned())
}

/// One message, and what goes with its id.
#[derive(Debug, clap::Args)]
pub(super) struct OneMessageArgs {
    #[command(flatten)]
    message: MessageArgs,
    /// The source of the message that `--id` names.
    #[arg(long, requires = "id", conflicts_with = "key")]
    source: Option<String>,
    /// The tenant of the message that `--id` names.
    #[arg(long, requires = "id", conflicts_with = "key")]
    tenant: Option<String>,
}

impl OneMessageArgs {
    /// The key, if a message is named.
    pub(super) fn find(&self, place: &TargetArgs) -> Result<Option<Key>, CommandError> {
        self.message.find(place, self.source.as_deref(), self.tenant.as_deref())
    }

    /// What was not found, with what is easily forgotten.
    pub(super) fn not_found(&self, failed: CommandError) -> CommandError {
        not_found(failed, &self.message, self.source.as_deref())
    }

    /// The key of the message, which has to be named.
    pub(super) fn key(&self, place: &TargetArgs) -> Result<Key, CommandError> {
        self.find(place)?.ok_or_else(|| usage("name a message with --key, or with --id and --source"))
    }
}

/// Who asks, and why.
#[derive(Debug, clap::Args)]
pub(super) struct ActorArgs {
    /// Who asks for it; recorded. Needed on a store; an API knows it by the token.
    #[arg(long, env = "ONCEBOX_ACTOR")]
    actor: Option<String>,
    /// Why; recorded.
    #[arg(long)]
    reason: String,
    /// The identity of the operation, a UUID: the same again is done once. Default: a new one, which is printed.
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
            return Err(usage("--reason is empty; say why, whoever reads the records wants to know"));
        }
        Ok(wire::Reason(self.reason.clone()))
    }
}

/// Which entries.
#[derive(Debug, clap::Args)]
pub(super) struct EntryFilterArgs {
    /// With this status; can be given several times.
    #[arg(long = "status", value_name = "STATUS", value_parser = status)]
    statuses: Vec<Status>,
    /// Of this handler.
    #[arg(long, value_parser = handler)]
    pub(super) handler: Option<HandlerKey>,
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
    /// Of messages that came at this time or later, as in 2026-01-31T12:00:00Z, or on this day or later, as in 2026-01-31.
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

/// A time, or the beginning of a day.
fn time(text: &str) -> Result<Timestamp, String> {
    let day = || humantime::parse_rfc3339(&format!("{text}T00:00:00Z"));
    let time: Result<SystemTime, _> = humantime::parse_rfc3339_weak(text).or_else(|_| day());
    time.map(Into::into).map_err(|_| "write it like 2026-01-31T12:00:00Z, or 2026-01-31; all in UTC".into())
}

/// A filter as the API has it, with what is particular to its use.
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

    /// Whether it asks for anything that does not also go with the id of one message.
    pub(super) fn asks_for_many(&self) -> bool {
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
