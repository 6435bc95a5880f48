//! Settings of `oncebox.toml`. The comments are the documentation of the settings in `docs/config.md`.

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
    /// Address and port for messages over HTTP. Default: `127.0.0.1:8471`.
    pub(crate) listen: Option<Located<String>>,
    /// Certificate for messages over HTTPS: `{ certificate = "/etc/ssl/in.pem", key = "/etc/ssl/in.key" }`. `SIGHUP` reloads the
    /// files. Default: none, plain HTTP.
    pub(crate) tls: Option<Located<TlsTable>>,
    /// Time for running deliveries to finish after a stop signal. Default: `30s`.
    pub(crate) grace: Option<Located<TimeSpan>>,
    /// Maximum connections from one address. A proxy is one address: set as many as it opens. Default: a quarter of all connections,
    /// which are at most 4,096, and fewer where file descriptors are few.
    pub(crate) connections_per_address: Option<Located<usize>>,
    /// Non-public addresses that handlers may have: `true` for this machine and private networks, or a list of networks. Link-local
    /// addresses must be in the list; metadata services of clouds must be listed by their own address. Default: `false`.
    pub(crate) allow_private: Option<Private>,
    /// Databases by name. Default: the SQLite file `oncebox.db`.
    #[serde(default)]
    pub(crate) store: Named<StoreTable>,
    /// HTTP API for operators, with metrics and health. Default: no API.
    pub(crate) api: Option<ApiTable>,
    /// Limits for `/livez` and `/readyz`.
    #[serde(default)]
    pub(crate) health: HealthTable,
    /// Inboxes by name. The name is part of every key: a renamed inbox does not recognise earlier messages.
    #[serde(default)]
    pub(crate) inbox: Named<InboxTable>,
}

/// A certificate and its key.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TlsTable {
    /// PEM file with the certificate chain, the server certificate first.
    pub(crate) certificate: Located<String>,
    /// PEM file with the private key: PKCS#8, PKCS#1 or SEC1.
    pub(crate) key: Located<String>,
}

/// A database.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct StoreTable {
    /// URL: `sqlite:oncebox.db`, `postgres://user@host/database`, or a reference to it: `env:DATABASE_URL`, `file:/run/secrets/url`.
    pub(crate) url: Located<Guarded>,
    /// Create and upgrade the tables at start. With `false`, the sidecar refuses to start if steps are missing, and names the command
    /// to run. Default: `true`.
    pub(crate) migrate: Option<bool>,
    /// PostgreSQL: schema of the tables. Default: `public`.
    pub(crate) schema: Option<Located<String>>,
    /// PostgreSQL: prefix of the table names. Default: `oncebox_`.
    pub(crate) prefix: Option<Located<String>>,
    /// PostgreSQL: the connection uses a pooler in transaction mode, like `PgBouncer`. Default: `false`.
    pub(crate) pooled: Option<Located<bool>>,
    /// Encryption of stored messages. Default: none.
    pub(crate) seal: Option<Located<SealTable>>,
}

/// Encryption at rest: the store seals payloads, headers and errors, and authenticates the fields that stay readable.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SealTable {
    /// Keys by name: `{ "2026-11" = "file:/run/secrets/seal-2026-11" }`. Each is 32 random bytes in base64 or hexadecimal digits, as
    /// from `openssl rand -base64 32`. `SIGHUP` reloads them.
    pub(crate) keys: Named<Located<SecretRef>>,
    /// Name of the key that encrypts; the others only decrypt. Required if there are several.
    pub(crate) active: Option<Located<String>>,
    /// Secret that recognises duplicates, created like a key. Never change it: with another one, redeliveries look like conflicts.
    pub(crate) fingerprints: Located<SecretRef>,
    /// Messages that are not sealed: `"refuse"` poisons them, `"read"` delivers them, while older messages are stored. Default:
    /// `"refuse"`.
    pub(crate) plaintext: Option<Unsealed>,
    /// Messages sealed in version 1, which did not authenticate type, id, source, tenant, ordering key and time: `"read"` or
    /// `"refuse"`. Default: `"read"`.
    pub(crate) version_1: Option<Unsealed>,
}

/// Policy for a message that is not sealed in the current version.
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
    /// Address and port of the API. Beyond this machine it needs at least one token, and uses the certificate of `tls`; without a
    /// certificate, the sidecar logs a warning. Default: `127.0.0.1:8472`.
    pub(crate) listen: Option<Located<String>>,
    /// Tokens by name. Default: every program on this machine has the role `admin`.
    #[serde(default)]
    pub(crate) token: Named<TokenTable>,
    /// JSON pointers to hide in payloads. A part `*` matches every name or index.
    pub(crate) redact_pointers: Option<Located<Many<String>>>,
    /// Regular expressions to hide in payloads, headers and errors.
    pub(crate) redact_patterns: Option<Located<Many<String>>>,
}

/// A token for the API. The audit log records its name.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TokenTable {
    /// Hash of the token: `sha256:` and 64 digits. `oncebox token` creates both.
    pub(crate) hash: Located<Guarded>,
    /// Roles: `"viewer"` reads everything but payloads, `"payload-reader"` also payloads, `"operator"` reads and acts, `"admin"` does
    /// everything.
    pub(crate) roles: Located<Many<ApiRole>>,
}

/// Limits for the health of an inbox.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct HealthTable {
    /// Degraded if the loop of a component is overdue for this long. Default: `2m`.
    pub(crate) idle_degraded: Option<Located<TimeSpan>>,
    /// Unhealthy if the loop of a component is overdue for this long. Default: `5m`.
    pub(crate) idle_unhealthy: Option<Located<TimeSpan>>,
    /// Not ready if the store does not respond for this long. Default: `30s`.
    pub(crate) store_unhealthy: Option<Located<TimeSpan>>,
    /// Degraded while a message has been due for this long, or `"forever"` for never. Default: `15m`.
    pub(crate) lag_degraded: Option<Located<Window>>,
    /// Unhealthy while a message has been due for this long. Default: `"forever"`, never.
    pub(crate) lag_unhealthy: Option<Located<Window>>,
    /// Degraded while a message behind a poisoned one with its ordering key is this old, or `"forever"` for never. Default: `5m`.
    pub(crate) blocked_degraded: Option<Located<Window>>,
    /// Unhealthy while a message behind a poisoned one with its ordering key is this old. Default: `"forever"`, never.
    pub(crate) blocked_unhealthy: Option<Located<Window>>,
    /// Degraded while this many messages wait for a handler, counted up to 10000. Default: never.
    pub(crate) backlog_degraded: Option<Located<u64>>,
    /// Unhealthy while this many messages wait for a handler. Default: never.
    pub(crate) backlog_unhealthy: Option<Located<u64>>,
}

/// An inbox: stores each message of its sources once and delivers it to its handlers.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct InboxTable {
    /// Name of its store. Required if there are several.
    pub(crate) store: Option<Located<String>>,
    /// Deduplication key: `"id"` (source and id), `"cloudevents"`, `"content"`, `{ header = "x-request-id" }` or
    /// `{ pointer = "/order/id" }`. Default: `"id"`.
    pub(crate) key: Option<Located<KeySetting>>,
    /// Ordering key: messages with the same value of `{ header = ".." }` or `{ pointer = "/customer" }` run one after the other.
    /// Default: as the source says; most sources have no order.
    pub(crate) order: Option<Located<KeyLocation>>,
    /// Retention window: a duplicate of a finished message is recognised this long. Default: `7d`.
    pub(crate) retention: Option<Located<Window>>,
    /// Time between two deletions of messages past their retention. Default: a tenth of the shortest window, `1s` to `1h`.
    pub(crate) sweep: Option<Located<TimeSpan>>,
    /// Policy for a source that may redeliver after the retention window: `"refuse"` to start, or `"warn"`. Default: `"refuse"`.
    pub(crate) short_window: Option<ShortWindowSetting>,
    /// Policy for a known key with another payload: `"quarantine"` for an operator, `"first-wins"` as a duplicate, `"accept-as-new"`
    /// as a new message. Set it for one key with `key = { pointer = "/order/id", on_conflict = "quarantine" }`. Default:
    /// `"first-wins"` for a `pointer` and for the header `correlation-id`, `"quarantine"` for all other keys.
    pub(crate) on_conflict: Option<OnConflictSetting>,
    /// Policy for a message without a key: `"refuse"`, or `"undeduplicated"`: every delivery runs. Default: `"refuse"`.
    pub(crate) missing_key: Option<MissingKeySetting>,
    /// Policy for a message without a handler: `"keep"` or `"refuse"`. Default: `"keep"`.
    pub(crate) unrouted: Option<UnroutedSetting>,
    /// Tenants of messages: `"off"`, `"optional"` or `"required"`. Default: `"off"`.
    pub(crate) tenants: Option<TenantsSetting>,
    /// Tenant of messages that were accepted before the inbox had tenants: their redeliveries with this tenant are still duplicates.
    /// Requires `tenants = "required"`. Never remove it.
    pub(crate) adopted_tenant: Option<Located<String>>,
    /// Policy for a changed `tenants` or `adopted_tenant`: `"refuse"` to start, or `"accept"`: redeliveries whose tenant changed run
    /// again. Default: `"refuse"`.
    pub(crate) on_tenants_change: Option<OnTenantsChangeSetting>,
    /// Lease of a delivery: after a crash, a message waits up to this long before another worker takes it. On SQLite, a process that
    /// starts takes over from a dead one on the same machine at once. Default: `30s`.
    pub(crate) lease: Option<Located<TimeSpan>>,
    /// Time between two polls of the store if no notification arrives. Default: `30s`.
    pub(crate) poll: Option<Located<TimeSpan>>,
    /// Maximum deliveries in flight, for all handlers together. Default: 512.
    pub(crate) in_flight: Option<Located<usize>>,
    /// Maximum payload, in bytes. Default: 4194304.
    pub(crate) max_payload: Option<Located<usize>>,
    /// HTTP endpoints by name. Default for an inbox without any source: a plain one at `/in/<inbox>`, only for this machine.
    #[serde(default)]
    pub(crate) http: Named<HttpTable>,
    /// RabbitMQ queues by name.
    #[serde(default)]
    pub(crate) rabbitmq: Named<RabbitmqTable>,
    /// Handlers by key. The store remembers deliveries under the key: to rename a handler, name its old key in `legacy`.
    #[serde(default)]
    pub(crate) handler: Named<HandlerTable>,
}

/// Policy for a source that may redeliver after the retention window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ShortWindowSetting {
    Refuse,
    Warn,
}

/// Policy for a known key with another payload.
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

/// Policy for a message without a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum MissingKeySetting {
    Refuse,
    Undeduplicated,
}

/// Policy for a message without a handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum UnroutedSetting {
    Keep,
    Refuse,
}

/// Tenants of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum TenantsSetting {
    Off,
    Optional,
    Required,
}

/// Policy for changed tenant settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum OnTenantsChangeSetting {
    Refuse,
    Accept,
}

/// A handler: an HTTP endpoint that gets each message until it responds with a 2xx.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct HandlerTable {
    /// URL of the endpoint: `http://` or `https://`. The sidecar never follows redirects.
    pub(crate) url: Located<String>,
    /// Message types, or patterns like `order.*`. Default: `["*"]`, all types.
    pub(crate) types: Option<Located<Many<String>>>,
    /// Retry policy: `"default"` (20 attempts over three days), `"quick"` (5 within 15 s), `"patient"` (25 over two weeks), `"never"`,
    /// or `{ attempts = 10, first = "2s", max = "1h" }`.
    pub(crate) retry: Option<Located<RetrySetting>>,
    /// Maximum crashes of a process that delivers only this message before the message is poisoned. Default: 3.
    pub(crate) crashes: Option<Located<u32>>,
    /// Delay after the first crash that counts for `crashes`. Each further crash multiplies it by six, up to ten minutes. Crashes
    /// that do not count have delays of their own: none twice, then 1 s to 30 s. Default: `10s`.
    pub(crate) crash_delay: Option<Located<TimeSpan>>,
    /// Time limit for a response. Default: `30s`.
    pub(crate) timeout: Option<Located<TimeSpan>>,
    /// Maximum concurrent deliveries. Default: 16.
    pub(crate) concurrency: Option<Located<usize>>,
    /// Rate limit for deliveries: `"100/s"`, `"30/min"`, `"10/h"`, or `{ count = 100, per = "1s", burst = 10 }`. Default: no limit.
    pub(crate) rate: Option<Located<RateSetting>>,
    /// Circuit breaker: `{ failures = 5, pause = "30s" }`. While it is open, no attempts are counted. Default: none.
    pub(crate) breaker: Option<Located<BreakerTable>>,
    /// Deduplication key for this handler; `"off"` delivers every duplicate. Default: the key of the inbox.
    pub(crate) key: Option<Located<KeySetting>>,
    /// Retention window for this handler. Default: the window of the inbox.
    pub(crate) retention: Option<Located<Window>>,
    /// Former keys of the handler.
    pub(crate) legacy: Option<Located<Many<String>>>,
    /// At every start, add entries for stored messages that a new handler has not had. Default: `false`, only new messages.
    pub(crate) backfill: Option<Located<bool>>,
    /// Policy for messages behind a poisoned one with the same ordering key: `"block"` until an operator acts, `"park"` parks them
    /// too, `"skip"` continues with them. Default: `"block"`.
    pub(crate) on_poisoned: Option<OnPoisonedSetting>,
    /// Deliver messages at once, without regard to their ordering key. Default: `false`, those with one key one at a time.
    pub(crate) unordered: Option<Located<bool>>,
    /// Policy for a 4xx response other than 410 and 429: `"retry"` or `"poison"`. Default: `"retry"`.
    #[serde(default)]
    pub(crate) on_4xx: On4xx,
    /// Secrets (`whsec_..`) that sign every request after Standard Webhooks. To replace a secret, put the new one first.
    pub(crate) secret: Option<Located<Many<SecretRef>>>,
    /// Headers of every request; a value may be `env:NAME` or `file:/path`.
    #[serde(default)]
    pub(crate) headers: Named<Located<Guarded>>,
    /// Headers of the message to forward, besides those of CloudEvents and of the trace. Not headers of the connection, like
    /// `transfer-encoding`.
    pub(crate) forward: Option<Located<Many<String>>>,
    /// PEM file with certificates to trust for `https://`, besides those of the system.
    pub(crate) ca_file: Option<Located<String>>,
    /// `allow_private` for this handler.
    pub(crate) allow_private: Option<Private>,
}

/// Circuit breaker of a handler.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BreakerTable {
    /// Consecutive failures that open the breaker.
    pub(crate) failures: u32,
    /// First pause. Each further failure doubles it.
    pub(crate) pause: TimeSpan,
    /// Longest pause. Default: 16 times the first.
    pub(crate) max_pause: Option<TimeSpan>,
}

/// Policy for messages behind a poisoned one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum OnPoisonedSetting {
    Block,
    Park,
    Skip,
}

/// An HTTP endpoint for messages. Its name is the source of its messages, which is part of their key.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct HttpTable {
    /// Format: `"plain"` (any body, with the headers `message-id` and `message-type`), `"cloudevents"`, or the webhooks of
    /// `"standard-webhooks"`, `"github"`, `"stripe"`, `"slack"`, `"shopify"`. Default: `"plain"`.
    pub(crate) format: Option<Located<SourceFormat>>,
    /// Path below `/in`. Default: `/` and its name.
    pub(crate) path: Option<Located<String>>,
    /// Authentication of senders, not for webhooks, which are signed: `"loopback"` (this machine), `"token"`
    /// (`Authorization: Bearer`), `"standard-webhooks"`, `"hmac"`, or `"open"` (every client that reaches the port). Default:
    /// `"loopback"`.
    pub(crate) verify: Option<Located<VerifySetting>>,
    /// Valid secrets or tokens; several while you replace one. At least 8 characters, and different for each source.
    pub(crate) secret: Option<Located<Many<SecretRef>>>,
    /// For `verify = "hmac"`: header with the signature.
    pub(crate) signature_header: Option<Located<String>>,
    /// For `verify = "hmac"`: prefix of the signature in the header, like `sha256=`. Default: none.
    pub(crate) signature_prefix: Option<Located<String>>,
    /// For `verify = "hmac"`: encoding of the signature, `"hex"` or `"base64"`. Default: `"hex"`.
    pub(crate) signature_encoding: Option<Located<SignatureEncoding>>,
    /// For `format = "shopify"`: id of the message. `"event"` uses `X-Shopify-Event-Id` with the topic, as Shopify recommends;
    /// `"webhook"` uses `X-Shopify-Webhook-Id`, for subscriptions to one topic with different fields. Default: `"event"`.
    pub(crate) shopify_id: Option<Located<ShopifyIdSetting>>,
    /// Maximum age of a signature, if it includes a time. Default: `5m`.
    pub(crate) replay_window: Option<Located<TimeSpan>>,
    /// Type for all messages, instead of the sender's. Not for CloudEvents.
    #[serde(rename = "type")]
    pub(crate) kind: Option<Located<String>>,
    /// Tenant of the messages, if the inbox has tenants.
    pub(crate) tenant: Option<Located<String>>,
    /// Rate limit for messages, like `"500/s"`. Default: no limit.
    pub(crate) quota: Option<Located<RateSetting>>,
}

/// Format of the messages of an endpoint.
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

/// Authentication of senders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum VerifySetting {
    Loopback,
    Token,
    StandardWebhooks,
    Hmac,
    Open,
}

/// Id of a message from Shopify.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ShopifyIdSetting {
    Event,
    Webhook,
}

/// Encoding of a signature.
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
    /// URL of the broker: `amqp://` or `amqps://`, or a reference to it: `env:NAME`, `file:/path`.
    pub(crate) url: Located<Guarded>,
    /// Queue name. The queue must exist, unless `declare` is set.
    pub(crate) queue: Located<String>,
    /// Declare the queue if it is missing: `"quorum"` or `"classic"`. Default: the queue must exist.
    pub(crate) declare: Option<Declare>,
    /// Messages are CloudEvents. Default: `false`.
    pub(crate) cloudevents: Option<bool>,
    /// Header with the id. Default: the property `message-id`.
    pub(crate) id_header: Option<Located<String>>,
    /// Header with the type. Default: the property `type`.
    pub(crate) type_header: Option<Located<String>>,
    /// Type for all messages, instead of `type_header`.
    #[serde(rename = "type")]
    pub(crate) kind: Option<Located<String>>,
    /// Tenant of the messages, if the inbox has tenants.
    pub(crate) tenant: Option<Located<String>>,
    /// Longest time until a redelivery, as when an operator moves dead letters back, or `"forever"`. `short_window` is the policy if
    /// it exceeds the retention window. Default: unknown.
    pub(crate) redelivers: Option<Located<Window>>,
    /// Maximum unacknowledged messages. Default: 512.
    pub(crate) prefetch: Option<Located<u16>>,
    /// Maximum redeliveries before a declared quorum queue dead-letters a message. Default: the broker's, 20 since RabbitMQ 4.0.
    pub(crate) delivery_limit: Option<Located<u32>>,
    /// Queue for rejected messages, declared with the queue. One of this, `dead_letter_exchange`, `rejected_exchange` and
    /// `discard_rejected` is required.
    pub(crate) dead_letter_queue: Option<Located<String>>,
    /// Dead-letter exchange of the queue, for rejected messages. It must exist.
    pub(crate) dead_letter_exchange: Option<Located<String>>,
    /// Routing key of dead letters. Default: the routing key of the message.
    pub(crate) dead_letter_routing_key: Option<Located<String>>,
    /// Exchange to which the sidecar publishes rejected messages itself.
    pub(crate) rejected_exchange: Option<Located<String>>,
    /// Routing key for `rejected_exchange`. Default: none.
    pub(crate) rejected_routing_key: Option<Located<String>>,
    /// Discard rejected messages. Default: `false`.
    pub(crate) discard_rejected: Option<bool>,
    /// PEM file with certificates to trust for `amqps://`, instead of those of the system.
    pub(crate) ca_file: Option<Located<String>>,
}

/// Type of a queue to declare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Declare {
    Quorum,
    Classic,
}
