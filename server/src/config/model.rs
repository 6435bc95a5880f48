//! What can be set in `oncebox.toml`. The comments here are the documentation of the keys.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

use super::rules::{KeyLocation, KeySetting, Private, RateSetting, RetrySetting};
use super::value::{Guarded, Located, Many, SecretRef, TimeSpan, Window};
use crate::api::access::ApiRole;
use crate::delivery::On4xx;

/// Tables by name.
pub(crate) type Named<T> = BTreeMap<Located<String>, T>;

/// The settings of `oncebox serve`.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ConfigFile {
    /// The address and port on which messages come in over HTTP. Default `127.0.0.1:8471`.
    pub(crate) listen: Option<Located<String>>,
    /// The certificate under which messages come in over HTTPS: `{ certificate = "/etc/ssl/in.pem", key = "/etc/ssl/in.key" }`.
    /// Default: none, and HTTP is spoken. `SIGHUP` reads the files again.
    pub(crate) tls: Option<Located<TlsTable>>,
    /// How long deliveries that run may go on once a stop was asked for. Default `30s`.
    pub(crate) grace: Option<Located<TimeSpan>>,
    /// Connections of senders at once from one address. Behind a proxy all come from its address, so set as many as it opens. Default:
    /// a quarter of all, which are at most 4,096 and fewer where file descriptors are few.
    pub(crate) connections_per_address: Option<Located<usize>>,
    /// Which addresses that are not public handlers may have: `true` for this machine and private networks, or a list of
    /// networks. Link-local addresses only by the list, and the metadata services of clouds only by their own address in it. Default
    /// `false`.
    pub(crate) allow_private: Option<Private>,
    /// The databases, by name. Without one there is the SQLite file `oncebox.db`.
    #[serde(default)]
    pub(crate) store: Named<StoreTable>,
    /// The HTTP API for operators, with metrics and health. Without this table there is none.
    pub(crate) api: Option<ApiTable>,
    /// From where on an inbox is not well any more: what `/livez` and `/readyz` say.
    #[serde(default)]
    pub(crate) health: HealthTable,
    /// The inboxes, by name. A name is part of every key: renaming an inbox forgets what it has seen.
    #[serde(default)]
    pub(crate) inbox: Named<InboxTable>,
}

/// A certificate and its key.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TlsTable {
    /// A PEM file with the chain of certificates, the server's own first.
    pub(crate) certificate: Located<String>,
    /// A PEM file with the key: PKCS#8, PKCS#1 or SEC1.
    pub(crate) key: Located<String>,
}

/// A database.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct StoreTable {
    /// Where it is: `sqlite:oncebox.db`, `postgres://user@host/database`, or where the URL is kept: `env:DATABASE_URL`,
    /// `file:/run/secrets/url`.
    pub(crate) url: Located<Guarded>,
    /// Whether the tables are made and brought up to date at start. Default `true`; with `false` and tables that lack
    /// something, the start is refused and says what to run.
    pub(crate) migrate: Option<bool>,
    /// PostgreSQL: the schema the tables are in. Default `public`.
    pub(crate) schema: Option<Located<String>>,
    /// PostgreSQL: what the names of the tables start with. Default `oncebox_`.
    pub(crate) prefix: Option<Located<String>>,
    /// PostgreSQL: whether the connection goes through a pooler in transaction mode, like `PgBouncer`. Default `false`.
    pub(crate) pooled: Option<Located<bool>>,
    /// Encrypts what the store keeps of messages. Default: nothing is encrypted.
    pub(crate) seal: Option<Located<SealTable>>,
}

/// Encryption at rest: payloads, headers and errors are stored sealed, and what stays readable of a message cannot be changed unnoticed.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SealTable {
    /// The keys, by name: `{ "2026-11" = "file:/run/secrets/seal-2026-11" }`. Each is 32 random bytes in base64 or hexadecimal
    /// digits, as from `openssl rand -base64 32`. `SIGHUP` reads them again.
    pub(crate) keys: Named<Located<SecretRef>>,
    /// The name of the key to write with; the others are only read with. Needed only if there are several.
    pub(crate) active: Option<Located<String>>,
    /// The secret by which repeats are recognised, made like a key. It never changes: with another one, redelivered messages look
    /// like conflicts.
    pub(crate) fingerprints: Located<SecretRef>,
    /// A message that is not sealed: `"refuse"` (the default) poisons it, `"read"` delivers it, for as long as messages of the time
    /// before are stored.
    pub(crate) plaintext: Option<Unsealed>,
    /// A message that was sealed in version 1, which did not protect its type, id, source, tenant, ordering key and time: `"read"` (the
    /// default) or `"refuse"`.
    pub(crate) version_1: Option<Unsealed>,
}

/// What happens to a message that is not sealed as messages are now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Unsealed {
    Refuse,
    Read,
}

/// The HTTP API for operators: `/api/v1`, `/metrics`, `/livez` and `/readyz`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ApiTable {
    /// The address and port it is served on. Beyond this machine it needs at least one token, and has the certificate of `tls`;
    /// without one a warning says that nothing is encrypted. Default `127.0.0.1:8472`.
    pub(crate) listen: Option<Located<String>>,
    /// Who may use it, by name. Without any, everybody on this machine may do everything.
    #[serde(default)]
    pub(crate) token: Named<TokenTable>,
    /// What is hidden of payloads, as JSON pointers; a part `*` stands for every name or index.
    pub(crate) redact_pointers: Option<Located<Many<String>>>,
    /// What is hidden of payloads, headers and errors, as regular expressions.
    pub(crate) redact_patterns: Option<Located<Many<String>>>,
}

/// Somebody who may use the API. The name is recorded with what they do.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TokenTable {
    /// The hash of the token: `sha256:` and 64 digits. `oncebox token` makes both.
    pub(crate) hash: Located<Guarded>,
    /// What it may do: `"viewer"` looks at everything but payloads, `"payload-reader"` at payloads too, `"operator"` looks and
    /// acts, `"admin"` does everything.
    pub(crate) roles: Located<Many<ApiRole>>,
}

/// From where on an inbox is not well any more.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct HealthTable {
    /// A part that has not turned for this long after it should have is degraded. Default `2m`.
    pub(crate) idle_degraded: Option<Located<TimeSpan>>,
    /// A part that has not turned for this long is unhealthy. Default `5m`.
    pub(crate) idle_unhealthy: Option<Located<TimeSpan>>,
    /// A store that does not answer for this long makes the inbox not ready. Default `30s`.
    pub(crate) store_unhealthy: Option<Located<TimeSpan>>,
    /// Degraded while a message has been due for this long, or `"forever"`: never. Default `15m`.
    pub(crate) lag_degraded: Option<Located<Window>>,
    /// Unhealthy while a message has been due for this long. Default `"forever"`: never.
    pub(crate) lag_unhealthy: Option<Located<Window>>,
    /// Degraded while a message behind a poisoned one with its ordering key was accepted this long ago, or `"forever"`: never.
    /// Default `5m`.
    pub(crate) blocked_degraded: Option<Located<Window>>,
    /// Unhealthy while a message behind a poisoned one with its ordering key was accepted this long ago. Default `"forever"`: never.
    pub(crate) blocked_unhealthy: Option<Located<Window>>,
    /// Degraded while this many messages wait for a handler; they are counted up to 10000. Default: never.
    pub(crate) backlog_degraded: Option<Located<u64>>,
    /// Unhealthy while this many messages wait for a handler. Default: never.
    pub(crate) backlog_unhealthy: Option<Located<u64>>,
}

/// An inbox: what comes in by its sources is stored once, and delivered to its handlers.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct InboxTable {
    /// The name of its store. Needed only if there are several.
    pub(crate) store: Option<Located<String>>,
    /// What makes two messages the same: `"id"` (source and id, the default), `"cloudevents"`, `"content"`,
    /// `{ header = "x-request-id" }` or `{ pointer = "/order/id" }`.
    pub(crate) key: Option<Located<KeySetting>>,
    /// What must be handled one after the other: messages with the same value of `{ header = ".." }` or
    /// `{ pointer = "/customer" }`. Default: what the source says, and nothing for most sources.
    pub(crate) order: Option<Located<KeyLocation>>,
    /// How long a finished message is remembered: a repeat after that is new. Default `7d`.
    pub(crate) retention: Option<Located<Window>>,
    /// How often messages past their retention are removed. Default: a tenth of the shortest window, `1s` to `1h`.
    pub(crate) sweep: Option<Located<TimeSpan>>,
    /// Whether a source may bring a message again after it was forgotten: `"refuse"` (the default) does not start then,
    /// `"warn"` does.
    pub(crate) short_window: Option<ShortWindowSetting>,
    /// A key that comes back with another payload: `"quarantine"` for a person to look at, `"first-wins"` as a duplicate,
    /// `"accept-as-new"` as a message of its own. Default: `"first-wins"` for a `pointer` and for the header `correlation-id`,
    /// `"quarantine"` for all other keys. For another policy beside one key, write it there:
    /// `key = { pointer = "/order/id", on_conflict = "quarantine" }`.
    pub(crate) on_conflict: Option<OnConflictSetting>,
    /// A message without a key: `"refuse"` (the default), or `"undeduplicated"`: every delivery of it runs.
    pub(crate) missing_key: Option<MissingKeySetting>,
    /// A message for which there is no handler: `"keep"` (the default), or `"refuse"`.
    pub(crate) unrouted: Option<UnroutedSetting>,
    /// Whether messages belong to tenants: `"off"` (the default), `"optional"` or `"required"`.
    pub(crate) tenants: Option<TenantsSetting>,
    /// The tenant of messages that were accepted before the inbox had tenants: their redeliveries with this tenant stay
    /// duplicates. Needs `tenants = "required"`, and stays set for good.
    pub(crate) adopted_tenant: Option<Located<String>>,
    /// What happens if the inbox has worked on the store with another `tenants` or `adopted_tenant`: `"refuse"` (the default:
    /// the sidecar does not start) or `"accept"` (redeliveries whose tenant changed run again).
    pub(crate) on_tenants_change: Option<OnTenantsChangeSetting>,
    /// How long a dead process keeps its messages from the others: they are delivered again after that. On SQLite a process that
    /// starts takes over from a dead one of the same machine at once. Default `30s`.
    pub(crate) lease: Option<Located<TimeSpan>>,
    /// How often the store is asked for work when nothing tells of any. Default `30s`.
    pub(crate) poll: Option<Located<TimeSpan>>,
    /// How many deliveries may be in hand at once, of all handlers together. Default 512.
    pub(crate) in_flight: Option<Located<usize>>,
    /// The largest payload, in bytes. Default 4194304.
    pub(crate) max_payload: Option<Located<usize>>,
    /// Endpoints that messages are posted to, by name. An inbox without any source has a plain one at `/in/<inbox>`, for
    /// this machine alone.
    #[serde(default)]
    pub(crate) http: Named<HttpTable>,
    /// RabbitMQ queues that messages are taken from, by name.
    #[serde(default)]
    pub(crate) rabbitmq: Named<RabbitmqTable>,
    /// Where messages are delivered to, by handler key. The key is what is remembered of a message's delivery: to rename
    /// one, name its old key in `legacy`.
    #[serde(default)]
    pub(crate) handler: Named<HandlerTable>,
}

/// What happens to a source that may bring a message again after it was forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ShortWindowSetting {
    Refuse,
    Warn,
}

/// What happens to a key that comes back with another payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum OnConflictSetting {
    Quarantine,
    FirstWins,
    AcceptAsNew,
}

impl From<OnConflictSetting> for oncebox::config::OnConflict {
    fn from(policy: OnConflictSetting) -> Self {
        match policy {
            OnConflictSetting::Quarantine => Self::Quarantine,
            OnConflictSetting::FirstWins => Self::FirstWins,
            OnConflictSetting::AcceptAsNew => Self::AcceptAsNew,
        }
    }
}

/// What happens to a message without a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum MissingKeySetting {
    Refuse,
    Undeduplicated,
}

/// What happens to a message for which there is no handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum UnroutedSetting {
    Keep,
    Refuse,
}

/// Whether messages belong to tenants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum TenantsSetting {
    Off,
    Optional,
    Required,
}

/// What happens if an inbox has worked with other tenants settings before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum OnTenantsChangeSetting {
    Refuse,
    Accept,
}

/// A handler: an HTTP endpoint that gets each message once, again if it failed.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct HandlerTable {
    /// Where messages are posted to: `http://` or `https://`. Redirects are never followed.
    pub(crate) url: Located<String>,
    /// Which types of messages it gets: types, or patterns like `order.*`. Default `["*"]`, which is all.
    pub(crate) types: Option<Located<Many<String>>>,
    /// When a failed delivery is tried again: `"default"` (20 attempts over three days), `"quick"` (5 within 15 s),
    /// `"patient"` (25 over two weeks), `"never"`, or `{ attempts = 10, first = "2s", max = "1h" }`.
    pub(crate) retry: Option<Located<RetrySetting>>,
    /// How many processes may die while they deliver a message alone before it is poisoned. Default 3.
    pub(crate) crashes: Option<Located<u32>>,
    /// Wait before a message is delivered again after the first such death; six times as long after each further one, up to ten
    /// minutes. Default `10s`.
    pub(crate) crash_delay: Option<Located<TimeSpan>>,
    /// How long it may take to answer. Default `30s`.
    pub(crate) timeout: Option<Located<TimeSpan>>,
    /// How many deliveries at once. Default 16.
    pub(crate) concurrency: Option<Located<usize>>,
    /// How many deliveries are begun in a time: `"100/s"`, `"30/min"`, `"10/h"`, or
    /// `{ count = 100, per = "1s", burst = 10 }`. Default: no limit.
    pub(crate) rate: Option<Located<RateSetting>>,
    /// When it is left alone because it only fails: `{ failures = 5, pause = "30s" }`. No attempts are counted meanwhile.
    pub(crate) breaker: Option<Located<BreakerTable>>,
    /// What makes two messages the same to this handler, if not what the inbox says; `"off"` delivers every repeat.
    pub(crate) key: Option<Located<KeySetting>>,
    /// How long what it finished is remembered, if not as long as the inbox says.
    pub(crate) retention: Option<Located<Window>>,
    /// Keys it had before.
    pub(crate) legacy: Option<Located<Many<String>>>,
    /// Whether it gets, at every start, the messages of its types that are stored and that it has not had: for a handler
    /// that is new. Default `false`: it gets what comes from now on.
    pub(crate) backfill: Option<Located<bool>>,
    /// What happens to messages behind a poisoned one with the same ordering key: `"block"` (the default) until a person
    /// decides, `"park"` parks them with it, `"skip"` goes on with them.
    pub(crate) on_poisoned: Option<OnPoisonedSetting>,
    /// What a 4xx means other than 410 and 429: `"retry"` (the default) or `"poison"`.
    #[serde(default)]
    pub(crate) on_4xx: On4xx,
    /// Signs every request as Standard Webhooks says, with each of these (`whsec_..`): name the new one first while you
    /// replace one.
    pub(crate) secret: Option<Located<Many<SecretRef>>>,
    /// Headers that every request has; a value may be `env:NAME` or `file:/path`.
    #[serde(default)]
    pub(crate) headers: Named<Located<Guarded>>,
    /// Headers of the message that are passed on beside those of CloudEvents and of the trace. Not those of the connection, like
    /// `transfer-encoding`.
    pub(crate) forward: Option<Located<Many<String>>>,
    /// The certificates to trust for `https://`, in a PEM file, beside the system's.
    pub(crate) ca_file: Option<Located<String>>,
    /// As above, for this handler alone.
    pub(crate) allow_private: Option<Private>,
}

/// When a handler that only fails is left alone.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BreakerTable {
    /// How many failures in a row.
    pub(crate) failures: u32,
    /// How long at first; twice as long each time it fails again.
    pub(crate) pause: TimeSpan,
    /// How long at the most. Default: 16 times the first pause.
    pub(crate) max_pause: Option<TimeSpan>,
}

/// What happens to messages behind a poisoned one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum OnPoisonedSetting {
    Block,
    Park,
    Skip,
}

/// An endpoint that messages are posted to. Its name is the source of its messages, which is part of their key.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct HttpTable {
    /// What is posted: `"plain"` (the default: any body, with the headers `message-id` and `message-type`),
    /// `"cloudevents"`, or the webhooks of `"standard-webhooks"`, `"github"`, `"stripe"`, `"slack"`, `"shopify"`.
    pub(crate) format: Option<Located<SourceFormat>>,
    /// Its path below `/in`. Default `/` and its name.
    pub(crate) path: Option<Located<String>>,
    /// How a sender proves who it is. Webhooks are signed in their own way; for the others `"loopback"` (the default: it is
    /// on this machine), `"token"` (`Authorization: Bearer`), `"standard-webhooks"`, `"hmac"`, or `"open"`: anybody who can
    /// reach the port.
    pub(crate) verify: Option<Located<VerifySetting>>,
    /// The secrets or tokens that count, several while one is replaced. At least 8 characters, and none of another source.
    pub(crate) secret: Option<Located<Many<SecretRef>>>,
    /// For `verify = "hmac"`: the header with the signature.
    pub(crate) signature_header: Option<Located<String>>,
    /// For `verify = "hmac"`: what stands before the signature in the header, like `sha256=`. Default: nothing.
    pub(crate) signature_prefix: Option<Located<String>>,
    /// For `verify = "hmac"`: how the signature is written, `"hex"` (the default) or `"base64"`.
    pub(crate) signature_encoding: Option<Located<SignatureEncoding>>,
    /// For `format = "shopify"`: which id recognises a repeat. `"event"` (the default) takes `X-Shopify-Event-Id` with the topic, as
    /// Shopify advises; `"webhook"` takes `X-Shopify-Webhook-Id`, for subscriptions to one topic that send different fields.
    pub(crate) shopify_id: Option<Located<ShopifyIdSetting>>,
    /// How old a signature may be, where its time is signed, too. Default `5m`.
    pub(crate) replay_window: Option<Located<TimeSpan>>,
    /// One type for all messages, whatever the sender says. Not for CloudEvents.
    #[serde(rename = "type")]
    pub(crate) kind: Option<Located<String>>,
    /// Whose messages these are, where the inbox has tenants.
    pub(crate) tenant: Option<Located<String>>,
    /// How many messages are taken in a time, like `"500/s"`. Default: as many as come.
    pub(crate) quota: Option<Located<RateSetting>>,
}

/// What is posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum SourceFormat {
    Plain,
    #[serde(rename = "cloudevents")]
    CloudEvents,
    StandardWebhooks,
    Github,
    Stripe,
    Slack,
    Shopify,
}

/// How a sender proves who it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum VerifySetting {
    Loopback,
    Token,
    StandardWebhooks,
    Hmac,
    Open,
}

/// Which id of Shopify recognises a repeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ShopifyIdSetting {
    Event,
    Webhook,
}

/// How a signature is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum SignatureEncoding {
    Hex,
    Base64,
}

/// A RabbitMQ queue. Its name is the source of its messages.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RabbitmqTable {
    /// Where the broker is: `amqp://` or `amqps://`, or where the URL is kept: `env:NAME`, `file:/path`.
    pub(crate) url: Located<Guarded>,
    /// The queue. It has to exist, unless `declare` says otherwise.
    pub(crate) queue: Located<String>,
    /// Makes the queue if it is missing: `"quorum"` or `"classic"`. Default: it has to exist.
    pub(crate) declare: Option<Declare>,
    /// Whether messages are CloudEvents. Default `false`.
    pub(crate) cloudevents: Option<bool>,
    /// The header with the id. Default: the property `message-id`.
    pub(crate) id_header: Option<Located<String>>,
    /// The header with the type. Default: the property `type`.
    pub(crate) type_header: Option<Located<String>>,
    /// One type for all messages, instead of `type_header`.
    #[serde(rename = "type")]
    pub(crate) kind: Option<Located<String>>,
    /// Whose messages these are, where the inbox has tenants.
    pub(crate) tenant: Option<Located<String>>,
    /// How long after its first delivery a message may come again, as when dead letters are moved back, or `"forever"`;
    /// `short_window` says what follows if that is longer than anything is remembered. Default: nobody knows.
    pub(crate) redelivers: Option<Located<Window>>,
    /// How many messages may be on their way at once. Default 512.
    pub(crate) prefetch: Option<Located<u16>>,
    /// How often a quorum queue that is declared lets a message come back before it dead-letters it. Default: what the broker
    /// does, which is 20 from RabbitMQ 4.0 on.
    pub(crate) delivery_limit: Option<Located<u32>>,
    /// A queue for messages that can never be taken, which is declared with the queue. One of this, `dead_letter_exchange`,
    /// `rejected_exchange` and `discard_rejected` is needed.
    pub(crate) dead_letter_queue: Option<Located<String>>,
    /// The dead-letter exchange of the queue, for messages that can never be taken. It has to exist.
    pub(crate) dead_letter_exchange: Option<Located<String>>,
    /// The routing key of dead letters. Default: the one that the message had.
    pub(crate) dead_letter_routing_key: Option<Located<String>>,
    /// The exchange to which we publish messages that can never be taken, instead of leaving that to the queue.
    pub(crate) rejected_exchange: Option<Located<String>>,
    /// The routing key for them. Default: none.
    pub(crate) rejected_routing_key: Option<Located<String>>,
    /// Whether messages that can never be taken may be lost. Default `false`.
    pub(crate) discard_rejected: Option<bool>,
    /// The certificates to trust for `amqps://`, in a PEM file, instead of the system's.
    pub(crate) ca_file: Option<Located<String>>,
}

/// A queue that is made if it is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Declare {
    Quorum,
    Classic,
}
