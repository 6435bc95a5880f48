//! What can be set in `oncebox.toml`. The comments here are the documentation of the keys.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

use super::rules::{Key, Place, Private, Rate, Retry};
use super::value::{At, Guarded, Many, Secret, Span, Window};
use crate::api::access::Role;
use crate::delivery::On4xx;

/// Tables by name.
pub(crate) type Named<T> = BTreeMap<At<String>, T>;

/// The settings of `oncebox serve`.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct File {
    /// The address and port on which messages come in over HTTP. Default `127.0.0.1:8471`.
    pub(crate) listen: Option<At<String>>,
    /// The certificate under which messages come in over HTTPS: `{ certificate = "/etc/ssl/in.pem", key = "/etc/ssl/in.key" }`.
    /// Default: none, and HTTP is spoken. `SIGHUP` reads the files again.
    pub(crate) tls: Option<At<Tls>>,
    /// How long deliveries that run may go on once a stop was asked for. Default `30s`.
    pub(crate) grace: Option<At<Span>>,
    /// Connections of senders at once from one address. Behind a proxy all come from its address, so set as many as it opens. Default:
    /// a quarter of all, which are at most 4,096 and fewer where file descriptors are few.
    pub(crate) connections_per_address: Option<At<usize>>,
    /// Which addresses that are not public handlers may have: `true` for this machine and private networks, or a list of
    /// networks. Link-local addresses only by the list, and the metadata services of clouds only by their own address in it. Default
    /// `false`.
    pub(crate) allow_private: Option<Private>,
    /// The databases, by name. Without one there is the SQLite file `oncebox.db`.
    #[serde(default)]
    pub(crate) store: Named<Store>,
    /// The HTTP API for operators, with metrics and health. Without this table there is none.
    pub(crate) api: Option<Api>,
    /// From where on an inbox is not well any more: what `/livez` and `/readyz` say.
    #[serde(default)]
    pub(crate) health: Health,
    /// The inboxes, by name. A name is part of every key: renaming an inbox forgets what it has seen.
    #[serde(default)]
    pub(crate) inbox: Named<Inbox>,
}

/// A certificate and its key.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Tls {
    /// A PEM file with the chain of certificates, the server's own first.
    pub(crate) certificate: At<String>,
    /// A PEM file with the key: PKCS#8, PKCS#1 or SEC1.
    pub(crate) key: At<String>,
}

/// A database.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Store {
    /// Where it is: `sqlite:oncebox.db`, `postgres://user@host/database`, or where the URL is kept: `env:DATABASE_URL`,
    /// `file:/run/secrets/url`.
    pub(crate) url: At<Guarded>,
    /// Whether the tables are made and brought up to date at start. Default `true`; with `false` and tables that lack
    /// something, the start is refused and says what to run.
    pub(crate) migrate: Option<bool>,
    /// PostgreSQL: the schema the tables are in. Default `public`.
    pub(crate) schema: Option<At<String>>,
    /// PostgreSQL: what the names of the tables start with. Default `oncebox_`.
    pub(crate) prefix: Option<At<String>>,
    /// PostgreSQL: whether the connection goes through a pooler in transaction mode, like `PgBouncer`. Default `false`.
    pub(crate) pooled: Option<At<bool>>,
    /// Encrypts what the store keeps of messages. Default: nothing is encrypted.
    pub(crate) seal: Option<At<Seal>>,
}

/// Encryption at rest: payloads, headers and errors are stored sealed, and what stays readable of a message cannot be changed unnoticed.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Seal {
    /// The keys, by name: `{ "2026-11" = "file:/run/secrets/seal-2026-11" }`. Each is 32 random bytes in base64 or hexadecimal
    /// digits, as from `openssl rand -base64 32`. `SIGHUP` reads them again.
    pub(crate) keys: Named<At<Secret>>,
    /// The name of the key to write with; the others are only read with. Needed only if there are several.
    pub(crate) active: Option<At<String>>,
    /// The secret by which repeats are recognised, made like a key. It never changes: with another one, redelivered messages look
    /// like conflicts.
    pub(crate) fingerprints: At<Secret>,
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
pub(crate) struct Api {
    /// The address and port it is served on. Beyond this machine it needs at least one token, and has the certificate of `tls`;
    /// without one a warning says that nothing is encrypted. Default `127.0.0.1:8472`.
    pub(crate) listen: Option<At<String>>,
    /// Who may use it, by name. Without any, everybody on this machine may do everything.
    #[serde(default)]
    pub(crate) token: Named<Token>,
    /// What is hidden of payloads, as JSON pointers; a part `*` stands for every name or index.
    pub(crate) redact_pointers: Option<At<Many<String>>>,
    /// What is hidden of payloads, headers and errors, as regular expressions.
    pub(crate) redact_patterns: Option<At<Many<String>>>,
}

/// Somebody who may use the API. The name is recorded with what they do.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Token {
    /// The hash of the token: `sha256:` and 64 digits. `oncebox token` makes both.
    pub(crate) hash: At<Guarded>,
    /// What it may do: `"viewer"` looks at everything but payloads, `"payload-reader"` at payloads too, `"operator"` looks and
    /// acts, `"admin"` does everything.
    pub(crate) roles: At<Many<Role>>,
}

/// From where on an inbox is not well any more.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Health {
    /// A part that has not turned for this long after it should have is degraded. Default `2m`.
    pub(crate) idle_degraded: Option<At<Span>>,
    /// A part that has not turned for this long is unhealthy. Default `5m`.
    pub(crate) idle_unhealthy: Option<At<Span>>,
    /// A store that does not answer for this long makes the inbox not ready. Default `30s`.
    pub(crate) store_unhealthy: Option<At<Span>>,
    /// Degraded while a message has been due for this long, or `"forever"`: never. Default `15m`.
    pub(crate) lag_degraded: Option<At<Window>>,
    /// Unhealthy while a message has been due for this long. Default `"forever"`: never.
    pub(crate) lag_unhealthy: Option<At<Window>>,
    /// Degraded while a message behind a poisoned one with its ordering key was accepted this long ago, or `"forever"`: never.
    /// Default `5m`.
    pub(crate) blocked_degraded: Option<At<Window>>,
    /// Unhealthy while a message behind a poisoned one with its ordering key was accepted this long ago. Default `"forever"`: never.
    pub(crate) blocked_unhealthy: Option<At<Window>>,
    /// Degraded while this many messages wait for a handler; they are counted up to 10000. Default: never.
    pub(crate) backlog_degraded: Option<At<u64>>,
    /// Unhealthy while this many messages wait for a handler. Default: never.
    pub(crate) backlog_unhealthy: Option<At<u64>>,
}

/// An inbox: what comes in by its sources is stored once, and delivered to its handlers.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Inbox {
    /// The name of its store. Needed only if there are several.
    pub(crate) store: Option<At<String>>,
    /// What makes two messages the same: `"id"` (source and id, the default), `"cloudevents"`, `"content"`,
    /// `{ header = "x-request-id" }` or `{ pointer = "/order/id" }`.
    pub(crate) key: Option<At<Key>>,
    /// What must be handled one after the other: messages with the same value of `{ header = ".." }` or
    /// `{ pointer = "/customer" }`. Default: what the source says, and nothing for most sources.
    pub(crate) order: Option<At<Place>>,
    /// How long a finished message is remembered: a repeat after that is new. Default `7d`.
    pub(crate) retention: Option<At<Window>>,
    /// How often messages past their retention are removed. Default: a tenth of the shortest window, `1s` to `1h`.
    pub(crate) sweep: Option<At<Span>>,
    /// Whether a source may bring a message again after it was forgotten: `"refuse"` (the default) does not start then,
    /// `"warn"` does.
    pub(crate) short_window: Option<ShortWindow>,
    /// A key that comes back with another payload: `"keep-aside"` for a person to look at, `"first-wins"` as a duplicate,
    /// `"accept-as-new"` as a message of its own. Default: `"first-wins"` for a `pointer` and for the header `correlation-id`,
    /// `"keep-aside"` for all other keys. For another policy beside one key, write it there:
    /// `key = { pointer = "/order/id", on_conflict = "keep-aside" }`.
    pub(crate) on_conflict: Option<OnConflict>,
    /// A message without a key: `"refuse"` (the default), or `"undeduplicated"`: every delivery of it runs.
    pub(crate) missing_key: Option<MissingKey>,
    /// A message for which there is no handler: `"keep"` (the default), or `"refuse"`.
    pub(crate) unrouted: Option<Unrouted>,
    /// Whether messages belong to tenants: `"off"` (the default), `"optional"` or `"required"`.
    pub(crate) tenants: Option<Tenants>,
    /// The tenant of messages that were accepted before the inbox had tenants: their redeliveries with this tenant stay
    /// duplicates. Needs `tenants = "required"`, and stays set for good.
    pub(crate) adopted_tenant: Option<At<String>>,
    /// What happens if the inbox has worked on the store with another `tenants` or `adopted_tenant`: `"refuse"` (the default:
    /// the sidecar does not start) or `"accept"` (redeliveries whose tenant changed run again).
    pub(crate) on_tenants_change: Option<OnTenantsChange>,
    /// How long a dead process keeps its messages from the others: they are delivered again after that. On SQLite a process that
    /// starts takes over from a dead one of the same machine at once. Default `30s`.
    pub(crate) lease: Option<At<Span>>,
    /// How often the store is asked for work when nothing tells of any. Default `30s`.
    pub(crate) poll: Option<At<Span>>,
    /// How many deliveries may be in hand at once, of all handlers together. Default 512.
    pub(crate) in_flight: Option<At<usize>>,
    /// The largest payload, in bytes. Default 4194304.
    pub(crate) max_payload: Option<At<usize>>,
    /// Endpoints that messages are posted to, by name. An inbox without any source has a plain one at `/in/<inbox>`, for
    /// this machine alone.
    #[serde(default)]
    pub(crate) http: Named<Http>,
    /// RabbitMQ queues that messages are taken from, by name.
    #[serde(default)]
    pub(crate) rabbitmq: Named<Rabbitmq>,
    /// Where messages are delivered to, by handler key. The key is what is remembered of a message's delivery: to rename
    /// one, name its old key in `legacy`.
    #[serde(default)]
    pub(crate) handler: Named<Handler>,
}

/// What happens to a source that may bring a message again after it was forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ShortWindow {
    Refuse,
    Warn,
}

/// What happens to a key that comes back with another payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum OnConflict {
    KeepAside,
    FirstWins,
    AcceptAsNew,
}

impl From<OnConflict> for oncebox::config::OnConflict {
    fn from(policy: OnConflict) -> Self {
        match policy {
            OnConflict::KeepAside => Self::KeepAside,
            OnConflict::FirstWins => Self::FirstWins,
            OnConflict::AcceptAsNew => Self::AcceptAsNew,
        }
    }
}

/// What happens to a message without a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum MissingKey {
    Refuse,
    Undeduplicated,
}

/// What happens to a message for which there is no handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Unrouted {
    Keep,
    Refuse,
}

/// Whether messages belong to tenants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Tenants {
    Off,
    Optional,
    Required,
}

/// What happens if an inbox has worked with other tenants settings before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum OnTenantsChange {
    Refuse,
    Accept,
}

/// A handler: an HTTP endpoint that gets each message once, again if it failed.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Handler {
    /// Where messages are posted to: `http://` or `https://`. Redirects are never followed.
    pub(crate) url: At<String>,
    /// Which types of messages it gets: types, or patterns like `order.*`. Default `["*"]`, which is all.
    pub(crate) types: Option<At<Many<String>>>,
    /// When a failed delivery is tried again: `"default"` (20 attempts over three days), `"quick"` (5 within 15 s),
    /// `"patient"` (25 over two weeks), `"never"`, or `{ attempts = 10, first = "2s", max = "1h" }`.
    pub(crate) retry: Option<At<Retry>>,
    /// How many processes may die while they deliver a message alone before it is poisoned. Default 3.
    pub(crate) crashes: Option<At<u32>>,
    /// Wait before a message is delivered again after the first such death; six times as long after each further one, up to ten
    /// minutes. Default `10s`.
    pub(crate) crash_delay: Option<At<Span>>,
    /// How long it may take to answer. Default `30s`.
    pub(crate) timeout: Option<At<Span>>,
    /// How many deliveries at once. Default 16.
    pub(crate) concurrency: Option<At<usize>>,
    /// How many deliveries are begun in a time: `"100/s"`, `"30/min"`, `"10/h"`, or
    /// `{ count = 100, per = "1s", burst = 10 }`. Default: no limit.
    pub(crate) rate: Option<At<Rate>>,
    /// When it is left alone because it only fails: `{ failures = 5, pause = "30s" }`. No attempts are counted meanwhile.
    pub(crate) breaker: Option<At<Breaker>>,
    /// What makes two messages the same to this handler, if not what the inbox says; `"off"` delivers every repeat.
    pub(crate) key: Option<At<Key>>,
    /// How long what it finished is remembered, if not as long as the inbox says.
    pub(crate) retention: Option<At<Window>>,
    /// Keys it had before.
    pub(crate) legacy: Option<At<Many<String>>>,
    /// Whether it gets, at every start, the messages of its types that are stored and that it has not had: for a handler
    /// that is new. Default `false`: it gets what comes from now on.
    pub(crate) backfill: Option<At<bool>>,
    /// What happens to messages behind a poisoned one with the same ordering key: `"block"` (the default) until a person
    /// decides, `"park"` sets them aside with it, `"skip"` goes on with them.
    pub(crate) on_poisoned: Option<OnPoisoned>,
    /// What a 4xx means other than 410 and 429: `"retry"` (the default) or `"poison"`.
    #[serde(default)]
    pub(crate) on_4xx: On4xx,
    /// Signs every request as Standard Webhooks says, with each of these (`whsec_..`): name the new one first while you
    /// replace one.
    pub(crate) secret: Option<At<Many<Secret>>>,
    /// Headers that every request has; a value may be `env:NAME` or `file:/path`.
    #[serde(default)]
    pub(crate) headers: Named<At<Guarded>>,
    /// Headers of the message that are passed on beside those of CloudEvents and of the trace. Not those of the connection, like
    /// `transfer-encoding`.
    pub(crate) forward: Option<At<Many<String>>>,
    /// The certificates to trust for `https://`, in a PEM file, beside the system's.
    pub(crate) ca_file: Option<At<String>>,
    /// As above, for this handler alone.
    pub(crate) allow_private: Option<Private>,
}

/// When a handler that only fails is left alone.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Breaker {
    /// How many failures in a row.
    pub(crate) failures: u32,
    /// How long at first; twice as long each time it fails again.
    pub(crate) pause: Span,
    /// How long at the most. Default: 16 times the first pause.
    pub(crate) max_pause: Option<Span>,
}

/// What happens to messages behind a poisoned one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum OnPoisoned {
    Block,
    Park,
    Skip,
}

/// An endpoint that messages are posted to. Its name is the source of its messages, which is part of their key.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Http {
    /// What is posted: `"plain"` (the default: any body, with the headers `message-id` and `message-type`),
    /// `"cloudevents"`, or the webhooks of `"standard-webhooks"`, `"github"`, `"stripe"`, `"slack"`, `"shopify"`.
    pub(crate) format: Option<At<Format>>,
    /// Its path below `/in`. Default `/` and its name.
    pub(crate) path: Option<At<String>>,
    /// How a sender proves who it is. Webhooks are signed in their own way; for the others `"loopback"` (the default: it is
    /// on this machine), `"token"` (`Authorization: Bearer`), `"standard-webhooks"`, `"hmac"`, or `"open"`: anybody who can
    /// reach the port.
    pub(crate) verify: Option<At<Verify>>,
    /// The secrets or tokens that count, several while one is replaced. At least 8 characters, and none of another source.
    pub(crate) secret: Option<At<Many<Secret>>>,
    /// For `verify = "hmac"`: the header with the signature.
    pub(crate) signature_header: Option<At<String>>,
    /// For `verify = "hmac"`: what stands before the signature in the header, like `sha256=`. Default: nothing.
    pub(crate) signature_prefix: Option<At<String>>,
    /// For `verify = "hmac"`: how the signature is written, `"hex"` (the default) or `"base64"`.
    pub(crate) signature_encoding: Option<At<Encoding>>,
    /// For `format = "shopify"`: which id recognises a repeat. `"event"` (the default) takes `X-Shopify-Event-Id` with the topic, as
    /// Shopify advises; `"webhook"` takes `X-Shopify-Webhook-Id`, for subscriptions to one topic that send different fields.
    pub(crate) shopify_id: Option<At<ShopifyId>>,
    /// How old a signature may be, where its time is signed, too. Default `5m`.
    pub(crate) replay_window: Option<At<Span>>,
    /// One type for all messages, whatever the sender says. Not for CloudEvents.
    #[serde(rename = "type")]
    pub(crate) kind: Option<At<String>>,
    /// Whose messages these are, where the inbox has tenants.
    pub(crate) tenant: Option<At<String>>,
    /// How many messages are taken in a time, like `"500/s"`. Default: as many as come.
    pub(crate) quota: Option<At<Rate>>,
}

/// What is posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Format {
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
pub(crate) enum Verify {
    Loopback,
    Token,
    StandardWebhooks,
    Hmac,
    Open,
}

/// Which id of Shopify recognises a repeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ShopifyId {
    Event,
    Webhook,
}

/// How a signature is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Encoding {
    Hex,
    Base64,
}

/// A RabbitMQ queue. Its name is the source of its messages.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rabbitmq {
    /// Where the broker is: `amqp://` or `amqps://`, or where the URL is kept: `env:NAME`, `file:/path`.
    pub(crate) url: At<Guarded>,
    /// The queue. It has to exist, unless `declare` says otherwise.
    pub(crate) queue: At<String>,
    /// Makes the queue if it is missing: `"quorum"` or `"classic"`. Default: it has to exist.
    pub(crate) declare: Option<Declare>,
    /// Whether messages are CloudEvents. Default `false`.
    pub(crate) cloudevents: Option<bool>,
    /// The header with the id. Default: the property `message-id`.
    pub(crate) id_header: Option<At<String>>,
    /// The header with the type. Default: the property `type`.
    pub(crate) type_header: Option<At<String>>,
    /// One type for all messages, instead of `type_header`.
    #[serde(rename = "type")]
    pub(crate) kind: Option<At<String>>,
    /// Whose messages these are, where the inbox has tenants.
    pub(crate) tenant: Option<At<String>>,
    /// How long after its first delivery a message may come again, as when dead letters are moved back, or `"forever"`;
    /// `short_window` says what follows if that is longer than anything is remembered. Default: nobody knows.
    pub(crate) redelivers: Option<At<Window>>,
    /// How many messages may be on their way at once. Default 512.
    pub(crate) prefetch: Option<At<u16>>,
    /// How often a quorum queue that is declared lets a message come back before it dead-letters it. Default: what the broker
    /// does, which is 20 from RabbitMQ 4.0 on.
    pub(crate) delivery_limit: Option<At<u32>>,
    /// A queue for messages that can never be taken, which is declared with the queue. One of this, `dead_letter_exchange`,
    /// `rejected_exchange` and `discard_rejected` is needed.
    pub(crate) dead_letter_queue: Option<At<String>>,
    /// The dead-letter exchange of the queue, for messages that can never be taken. It has to exist.
    pub(crate) dead_letter_exchange: Option<At<String>>,
    /// The routing key of dead letters. Default: the one that the message had.
    pub(crate) dead_letter_routing_key: Option<At<String>>,
    /// The exchange to which we publish messages that can never be taken, instead of leaving that to the queue.
    pub(crate) rejected_exchange: Option<At<String>>,
    /// The routing key for them. Default: none.
    pub(crate) rejected_routing_key: Option<At<String>>,
    /// Whether messages that can never be taken may be lost. Default `false`.
    pub(crate) discard_rejected: Option<bool>,
    /// The certificates to trust for `amqps://`, in a PEM file, instead of the system's.
    pub(crate) ca_file: Option<At<String>>,
}

/// A queue that is made if it is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Declare {
    Quorum,
    Classic,
}
