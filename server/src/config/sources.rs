//! Checks the settings of sources. Tests: `tests/serve/config.rs`.

use std::collections::BTreeMap;
use std::time::Duration;

use oncebox::config::ShortWindow;

use super::model::{self, Declare, ShopifyIdSetting, SignatureEncoding, SourceFormat, VerifySetting};
use super::plan::{InboxPlan, Planner, Secrets};
use super::value::Located;

/// Path prefix of all endpoints.
pub(crate) const PREFIX: &str = "/in";

/// Plan of an HTTP endpoint. Never shows its secrets.
#[derive(Clone)]
pub(crate) struct HttpPlan {
    pub(crate) name: String,
    at: usize,
    pub(crate) path: String,
    pub(crate) format: SourceFormat,
    pub(crate) verify: VerifySetting,
    pub(crate) secrets: Vec<String>,
    pub(crate) signature: (String, String, SignatureEncoding),
    pub(crate) shopify_id: ShopifyIdSetting,
    pub(crate) replay_window: Option<Duration>,
    pub(crate) kind: Option<String>,
    pub(crate) tenant: Option<String>,
    pub(crate) quota: Option<oncebox::Rate>,
    /// True if the secrets are assumed, not read.
    pub(crate) assumed: bool,
}

impl std::fmt::Debug for HttpPlan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpPlan")
            .field("path", &self.path)
            .field("format", &self.format)
            .finish_non_exhaustive()
    }
}

impl HttpPlan {
    /// Returns the default endpoint of an inbox, only for this machine.
    pub(super) fn local(inbox: &Located<String>) -> Self {
        Self {
            name: inbox.to_string(),
            at: inbox.at(),
            path: format!("/{}", inbox.as_str()),
            format: SourceFormat::Plain,
            verify: VerifySetting::Loopback,
            secrets: Vec::new(),
            signature: (String::new(), String::new(), SignatureEncoding::Hex),
            shopify_id: ShopifyIdSetting::Event,
            replay_window: None,
            kind: None,
            tenant: None,
            quota: None,
            assumed: false,
        }
    }

    /// Returns the path of its URL.
    pub(crate) fn url_path(&self) -> String {
        format!("{PREFIX}{}", self.path)
    }

    /// Returns true if the format defines the signature.
    fn is_webhook(&self) -> bool {
        !matches!(self.format, SourceFormat::Plain | SourceFormat::CloudEvents)
    }

    /// Returns true if the signature includes a time.
    fn signs_time(&self) -> bool {
        match self.format {
            SourceFormat::StandardWebhooks | SourceFormat::Stripe | SourceFormat::Slack => true,
            SourceFormat::Github | SourceFormat::Shopify => false,
            SourceFormat::Plain | SourceFormat::CloudEvents => self.verify == VerifySetting::StandardWebhooks,
        }
    }

    /// Returns the longest time until a redelivery, if the sender documents it. docs/guides/webhooks.md lists the sources.
    fn redelivers(&self) -> Option<Duration> {
        match self.format {
            // Schedule of the specification.
            SourceFormat::StandardWebhooks => Some(Duration::from_mins(75 * 60 + 35)),
            // shopify.dev/changelog/updates-to-webhook-retry-mechanism, of 2024-09-10: 8 times over 4 hours.
            SourceFormat::Shopify => Some(Duration::from_hours(4)),
            // Three times within minutes; an app can ask for more, each hour for a day.
            SourceFormat::Slack => Some(Duration::from_hours(25)),
            // docs.stripe.com/webhooks/process-undelivered-events: "for up to three days".
            // docs.github.com/webhooks/testing-and-troubleshooting-webhooks/redelivering-webhooks: only on request, for
            // deliveries of the past 3 days.
            SourceFormat::Stripe | SourceFormat::Github => Some(Duration::from_hours(72)),
            SourceFormat::Plain | SourceFormat::CloudEvents => None,
        }
    }

    /// Returns a description of its format and senders.
    pub(crate) fn describe(&self) -> String {
        let format = match self.format {
            SourceFormat::Plain => "any body",
            SourceFormat::CloudEvents => "CloudEvents",
            SourceFormat::StandardWebhooks => "Standard Webhooks",
            SourceFormat::Github => "GitHub",
            SourceFormat::Stripe => "Stripe",
            SourceFormat::Slack => "Slack",
            SourceFormat::Shopify => "Shopify",
        };
        let from = match self.verify {
            _ if self.is_webhook() => "signed",
            VerifySetting::Loopback => "from this machine",
            VerifySetting::Token => "with a token",
            VerifySetting::StandardWebhooks | VerifySetting::Hmac => "signed",
            VerifySetting::Open => "from any client",
        };
        format!("{format}, {from}")
    }
}

/// Plan of a queue. Never shows its URL.
#[derive(Clone)]
pub(crate) struct RabbitmqPlan {
    pub(crate) name: String,
    pub(crate) at: usize,
    pub(crate) url: String,
    pub(crate) queue: String,
    pub(crate) settings: model::RabbitmqTable,
    pub(crate) ca: Option<String>,
}

/// Formats a time span.
fn span(time: Duration) -> String {
    if time == Duration::MAX { "any time".into() } else { humantime::format_duration(time).to_string() }
}

impl RabbitmqPlan {
    /// Returns the longest time until a redelivery, if configured.
    fn redelivers(&self) -> Option<Duration> {
        self.settings.redelivers.as_ref().map(|window| window.0.unwrap_or(Duration::MAX))
    }
}

impl InboxPlan {
    /// Returns the longest time until a redelivery from any source, if known.
    pub(crate) fn redelivers(&self) -> Option<Duration> {
        let http = self.http.iter().filter_map(HttpPlan::redelivers);
        http.chain(self.rabbitmq.iter().filter_map(RabbitmqPlan::redelivers)).max()
    }
}

impl std::fmt::Debug for RabbitmqPlan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RabbitmqPlan").field("queue", &self.queue).finish_non_exhaustive()
    }
}

impl Planner {
    pub(super) fn http(&mut self, name: &Located<String>, http: &model::HttpTable) -> HttpPlan {
        let secrets = self.read_all(http.secret.as_ref());
        let text = |set: &Option<Located<String>>| set.as_deref().cloned();
        let encoding = http.signature_encoding.as_deref().copied().unwrap_or(SignatureEncoding::Hex);
        let signature = (
            text(&http.signature_header).unwrap_or_default(),
            text(&http.signature_prefix).unwrap_or_default(),
            encoding,
        );
        let plan = HttpPlan {
            name: name.to_string(),
            at: name.at(),
            path: text(&http.path).unwrap_or_else(|| format!("/{}", name.as_str())),
            format: http.format.as_deref().copied().unwrap_or(SourceFormat::Plain),
            verify: http.verify.as_deref().copied().unwrap_or(VerifySetting::Loopback),
            assumed: self.secrets != Secrets::Read && http.secret.is_some(),
            secrets,
            signature,
            shopify_id: http.shopify_id.as_deref().copied().unwrap_or(ShopifyIdSetting::Event),
            replay_window: http.replay_window.as_ref().map(|span| span.0),
            kind: text(&http.kind),
            tenant: text(&http.tenant),
            quota: http.quota.as_ref().map(|rate| rate.0.clone()),
        };
        self.check_http(name, http, &plan);
        plan
    }

    fn check_http(&mut self, name: &Located<String>, http: &model::HttpTable, plan: &HttpPlan) {
        let at = http.verify.as_ref().map_or(name.at(), Located::at);
        if plan.is_webhook() && http.verify.is_some() {
            self.wrong(at, "these webhooks define their own signature; remove `verify`");
        }
        let wants =
            plan.is_webhook() || !matches!(plan.verify, VerifySetting::Loopback | VerifySetting::Open);
        match (wants, &http.secret) {
            (true, None) => {
                self.wrong(at, "senders cannot be verified without a secret; add `secret = \"env:NAME\"`");
            }
            (false, Some(secret)) => {
                let what = "a secret is set, and `verify` does not use it; set `verify`, or remove it";
                self.wrong(secret.at(), what);
            }
            _ => {}
        }
        let hmac = plan.verify == VerifySetting::Hmac;
        if hmac && http.signature_header.is_none() {
            self.wrong(at, "`signature_header` is missing; name the header of the signature");
        }
        let of_hmac = [
            http.signature_header.as_ref().map(Located::at),
            http.signature_prefix.as_ref().map(Located::at),
            http.signature_encoding.as_ref().map(Located::at),
        ];
        for at in of_hmac.into_iter().flatten().filter(|_| !hmac) {
            self.wrong(at, "this is for `verify = \"hmac\"`; remove it");
        }
        if let Some(id) = http.shopify_id.as_ref().filter(|_| plan.format != SourceFormat::Shopify) {
            self.wrong(id.at(), "this is for `format = \"shopify\"`; remove it");
        }
        if let Some(window) = http.replay_window.as_ref().filter(|_| !plan.signs_time()) {
            self.wrong(window.at(), "these signatures have no time, so they cannot expire; remove it");
        }
        if let (SourceFormat::CloudEvents, Some(kind)) = (plan.format, &http.kind) {
            self.wrong(kind.at(), "CloudEvents have their own type; remove it");
        }
    }

    pub(super) fn rabbitmq(&mut self, name: &Located<String>, queue: &model::RabbitmqTable) -> RabbitmqPlan {
        let url = self.guarded(&queue.url);
        if url.as_ref().is_some_and(|url| !(url.starts_with("amqp://") || url.starts_with("amqps://"))) {
            self.wrong(queue.url.at(), "not the URL of RabbitMQ; start it with \"amqp://\" or \"amqps://\"");
        }
        let dead_letters = queue.dead_letter_exchange.is_some() || queue.dead_letter_queue.is_some();
        let lost = !dead_letters && queue.rejected_exchange.is_none();
        if lost && queue.discard_rejected != Some(true) {
            let what = "rejected messages would be lost; name the `dead_letter_exchange` of the queue, a `dead_letter_queue` to declare, or a `rejected_exchange`, or set `discard_rejected = true`";
            self.wrong(queue.queue.at(), what);
        }
        self.check_rejected(queue);
        if let (Some(_), Some(kind)) = (&queue.type_header, &queue.kind) {
            let what = "`type` and `type_header` exclude each other; remove one of them";
            self.wrong(kind.at(), what);
        }
        let ca = queue.ca_file.as_ref().and_then(|path| self.file(path));
        RabbitmqPlan {
            name: name.to_string(),
            at: name.at(),
            url: url.unwrap_or_default(),
            queue: queue.queue.to_string(),
            settings: queue.clone(),
            ca,
        }
    }

    /// Checks where rejected messages go.
    fn check_rejected(&mut self, queue: &model::RabbitmqTable) {
        if let Some(letters) = &queue.dead_letter_queue {
            if queue.declare.is_none() {
                let what =
                    "an existing queue is not declared; add `declare`, or name its `dead_letter_exchange`";
                self.wrong(letters.at(), what);
            }
            if let Some(other) =
                queue.dead_letter_exchange.as_ref().or(queue.dead_letter_routing_key.as_ref())
            {
                let what = "`dead_letter_queue` excludes this setting; remove one of them";
                self.wrong(other.at(), what);
            }
        } else if let (Some(key), None) = (&queue.dead_letter_routing_key, &queue.dead_letter_exchange) {
            let what = "this key has no effect without a `dead_letter_exchange`; add it, or remove this";
            self.wrong(key.at(), what);
        }
        if let Some(limit) = queue.delivery_limit.as_ref().filter(|_| queue.declare != Some(Declare::Quorum))
        {
            let what = "this needs a declared quorum queue; add `declare = \"quorum\"`, or remove it";
            self.wrong(limit.at(), what);
        }
        let nowhere = |name: &&Located<String>| name.is_empty() && queue.dead_letter_routing_key.is_none();
        if let Some(exchange) = queue.dead_letter_exchange.as_ref().filter(nowhere) {
            let what = "the default exchange would return dead letters to this queue or drop them; name another exchange, or add the target queue as `dead_letter_routing_key`";
            self.wrong(exchange.at(), what);
        }
        match (&queue.rejected_exchange, &queue.rejected_routing_key) {
            (None, Some(key)) => {
                let what = "this key has no effect without a `rejected_exchange`; add it, or remove this";
                self.wrong(key.at(), what);
            }
            (Some(exchange), None) if exchange.is_empty() => {
                let what = "the default exchange needs the target queue; add it as `rejected_routing_key`";
                self.wrong(exchange.at(), what);
            }
            _ => {}
        }
    }

    /// Checks that sources and inbox agree on tenants; otherwise the inbox would refuse every message.
    pub(super) fn check_tenants(&mut self, name: &Located<String>, inbox: &model::InboxTable) {
        let http = inbox.http.iter().map(|(name, source)| (name, source.tenant.as_ref()));
        let queues = inbox.rabbitmq.iter().map(|(name, source)| (name, source.tenant.as_ref()));
        if let Some(tenant) = &inbox.adopted_tenant {
            if tenant.trim().is_empty() {
                self.wrong(tenant.at(), "the tenant has no name; set it, or remove this");
            } else if inbox.tenants != Some(model::TenantsSetting::Required) {
                let what = "messages of this tenant would mix with messages without a tenant; set `tenants = \"required\"`";
                self.wrong(tenant.at(), what);
            }
        }
        let mut sources: Vec<_> = http.chain(queues).collect();
        if sources.is_empty() {
            sources.push((name, None));
        }
        for (source, tenant) in sources {
            match (inbox.tenants, tenant) {
                (None | Some(model::TenantsSetting::Off), Some(tenant)) => {
                    let what = "the inbox has no tenants; set `tenants = \"optional\"` or \"required\" for it, or remove this";
                    self.wrong(tenant.at(), what);
                }
                (Some(model::TenantsSetting::Required), None) => {
                    let what = "the inbox requires a tenant, and this source names none; add `tenant = \"..\"` \
                                to the source, or set `tenants = \"optional\"`";
                    self.wrong(source.at(), what);
                }
                _ => {}
            }
        }
    }

    /// Refuses a backfill beside a shorter retention window: it would repeat messages that a handler has forgotten.
    pub(super) fn check_backfill(&mut self, inbox: &model::InboxTable) {
        let forgets = inbox.handler.values().any(|handler| handler.retention.is_some());
        let wanted = inbox.handler.values().filter_map(|handler| handler.backfill.as_ref());
        for backfill in wanted.filter(|wanted| ***wanted && forgets) {
            let what = "a handler of this inbox has its own `retention` and would get messages again that it has forgotten; remove one of the two";
            self.wrong(backfill.at(), what);
        }
    }

    /// Refuses a source that may redeliver after the retention window, or adds a warning.
    pub(super) fn check_windows(&mut self, inbox: &mut InboxPlan) {
        let whole = inbox.config.retention.unwrap_or(Duration::MAX);
        let own = inbox.handlers.iter().map(|handler| handler.retention.unwrap_or(whole));
        let shortest = own.min().unwrap_or(whole);
        let http = inbox.http.iter().map(|http| (&http.name, http.at, http.redelivers()));
        let queues = inbox.rabbitmq.iter().map(|queue| (&queue.name, queue.at, queue.redelivers()));
        for (name, at, again) in http.chain(queues) {
            let Some(again) = again.filter(|again| *again > shortest) else { continue };
            let (kept, again) = (humantime::format_duration(shortest), span(again));
            let what = format!(
                "the source {name:?} may redeliver a message after {again}, and the retention window is {kept}; set \
                 `retention` to more"
            );
            match inbox.config.short_window {
                ShortWindow::Warn => inbox.warnings.push(what),
                _ => self.wrong(at, format!("{what}, or `short_window = \"warn\"`")),
            }
        }
    }

    /// Checks that names and paths of sources are unique.
    pub(super) fn sources(&mut self, inboxes: &[InboxPlan]) {
        let mut names: BTreeMap<&str, &str> = BTreeMap::new();
        let mut paths: BTreeMap<&str, &str> = BTreeMap::new();
        for inbox in inboxes {
            let http = inbox.http.iter().map(|http| (&http.name, http.at, Some(&http.path)));
            let queues = inbox.rabbitmq.iter().map(|queue| (&queue.name, queue.at, None));
            for (name, at, path) in http.chain(queues) {
                if let Some(other) = names.insert(name, &inbox.name) {
                    let what =
                        format!("the inbox {other:?} has a source with the same name; rename one of them");
                    self.wrong(at, what);
                } else if let Some(other) = path.and_then(|path| paths.insert(path, name)) {
                    self.wrong(at, format!("{other:?} has the same path; change one of them"));
                }
            }
        }
    }
}
