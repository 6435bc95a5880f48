//! Where messages come from, checked.

use std::collections::BTreeMap;
use std::time::Duration;

use oncebox::config::ShortWindow;

use super::model::{self, Declare, ShopifyIdSetting, SignatureEncoding, SourceFormat, VerifySetting};
use super::plan::{InboxPlan, Planner, Secrets};
use super::value::Located;

/// What all endpoints are below.
pub(crate) const PREFIX: &str = "/in";

/// An endpoint that messages are posted to. Never shows its secrets.
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
    /// The secrets are only assumed to be there.
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
    /// The endpoint of an inbox that names none: for this machine alone.
    pub(super) fn near(inbox: &Located<String>) -> Self {
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

    /// The path of its URL.
    pub(crate) fn url_path(&self) -> String {
        format!("{PREFIX}{}", self.path)
    }

    /// Whether its messages are signed in their own way.
    fn is_webhook(&self) -> bool {
        !matches!(self.format, SourceFormat::Plain | SourceFormat::CloudEvents)
    }

    /// Whether the time is part of what is signed.
    fn signs_time(&self) -> bool {
        match self.format {
            SourceFormat::StandardWebhooks | SourceFormat::Stripe | SourceFormat::Slack => true,
            SourceFormat::Github | SourceFormat::Shopify => false,
            SourceFormat::Plain | SourceFormat::CloudEvents => self.verify == VerifySetting::StandardWebhooks,
        }
    }

    /// How long after its first delivery a message may come again, if the sender says so. docs/guides/webhooks.md has the
    /// pages that this is from.
    fn redelivers(&self) -> Option<Duration> {
        match self.format {
            // The schedule that the specification proposes.
            SourceFormat::StandardWebhooks => Some(Duration::from_mins(75 * 60 + 35)),
            // shopify.dev/changelog/updates-to-webhook-retry-mechanism, of 2024-09-10: 8 times over 4 hours.
            SourceFormat::Shopify => Some(Duration::from_hours(4)),
            // Three times within minutes; an app can ask for more, each hour for a day.
            SourceFormat::Slack => Some(Duration::from_hours(25)),
            // docs.stripe.com/webhooks/process-undelivered-events: "for up to three days".
            // docs.github.com/webhooks/testing-and-troubleshooting-webhooks/redelivering-webhooks: never by itself, and
            // when somebody asks for it, what is of the past 3 days.
            SourceFormat::Stripe | SourceFormat::Github => Some(Duration::from_hours(72)),
            SourceFormat::Plain | SourceFormat::CloudEvents => None,
        }
    }

    /// What it takes, and from whom, for people.
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
            VerifySetting::Open => "from anybody",
        };
        format!("{format}, {from}")
    }
}

/// A queue. Never shows its URL.
#[derive(Clone)]
pub(crate) struct RabbitmqPlan {
    pub(crate) name: String,
    pub(crate) at: usize,
    pub(crate) url: String,
    pub(crate) queue: String,
    pub(crate) settings: model::RabbitmqTable,
    pub(crate) ca: Option<String>,
}

/// A time for people.
fn span(time: Duration) -> String {
    if time == Duration::MAX { "any time".into() } else { humantime::format_duration(time).to_string() }
}

impl RabbitmqPlan {
    /// How long after its first delivery a message may come again, if that was said.
    fn redelivers(&self) -> Option<Duration> {
        self.settings.redelivers.as_ref().map(|window| window.0.unwrap_or(Duration::MAX))
    }
}

impl InboxPlan {
    /// How long after its first delivery a message of any source may come again, as far as that is known.
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
            self.wrong(at, "these webhooks are signed in their own way; leave `verify` out");
        }
        let wants =
            plan.is_webhook() || !matches!(plan.verify, VerifySetting::Loopback | VerifySetting::Open);
        match (wants, &http.secret) {
            (true, None) => {
                self.wrong(at, "nobody could be verified without a secret; add `secret = \"env:NAME\"`");
            }
            (false, Some(secret)) => {
                let what =
                    "a secret is given, and nothing is verified with it; set `verify`, or leave it out";
                self.wrong(secret.at(), what);
            }
            _ => {}
        }
        let hmac = plan.verify == VerifySetting::Hmac;
        if hmac && http.signature_header.is_none() {
            self.wrong(at, "`signature_header` is missing: which header is the signature in?");
        }
        let of_hmac = [
            http.signature_header.as_ref().map(Located::at),
            http.signature_prefix.as_ref().map(Located::at),
            http.signature_encoding.as_ref().map(Located::at),
        ];
        for at in of_hmac.into_iter().flatten().filter(|_| !hmac) {
            self.wrong(at, "this is for `verify = \"hmac\"`; leave it out");
        }
        if let Some(id) = http.shopify_id.as_ref().filter(|_| plan.format != SourceFormat::Shopify) {
            self.wrong(id.at(), "this is for `format = \"shopify\"`; leave it out");
        }
        if let Some(window) = http.replay_window.as_ref().filter(|_| !plan.signs_time()) {
            self.wrong(window.at(), "no time is signed here, so nothing can be too old; leave it out");
        }
        if let (SourceFormat::CloudEvents, Some(kind)) = (plan.format, &http.kind) {
            self.wrong(kind.at(), "CloudEvents have a type of their own; leave it out");
        }
    }

    pub(super) fn rabbitmq(&mut self, name: &Located<String>, queue: &model::RabbitmqTable) -> RabbitmqPlan {
        let url = self.guarded(&queue.url);
        if url.as_ref().is_some_and(|url| !(url.starts_with("amqp://") || url.starts_with("amqps://"))) {
            self.wrong(
                queue.url.at(),
                "this is no URL of RabbitMQ; it starts with \"amqp://\" or \"amqps://\"",
            );
        }
        let dead_letters = queue.dead_letter_exchange.is_some() || queue.dead_letter_queue.is_some();
        let lost = !dead_letters && queue.rejected_exchange.is_none();
        if lost && queue.discard_rejected != Some(true) {
            let what = "a message that can never be taken would be lost; name the `dead_letter_exchange` of the queue or a \
                        `dead_letter_queue` to declare with it, say where they go with `rejected_exchange`, or set \
                        `discard_rejected = true`";
            self.wrong(queue.queue.at(), what);
        }
        self.check_rejected(queue);
        if let (Some(_), Some(kind)) = (&queue.type_header, &queue.kind) {
            let what = "one type for all leaves nothing to `type_header`; leave one of the two out";
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

    /// Where the rejected go has to be somewhere.
    fn check_rejected(&mut self, queue: &model::RabbitmqTable) {
        if let Some(letters) = &queue.dead_letter_queue {
            if queue.declare.is_none() {
                let what = "nothing is declared of a queue that exists; add `declare`, or name the `dead_letter_exchange` that it has";
                self.wrong(letters.at(), what);
            }
            if let Some(other) =
                queue.dead_letter_exchange.as_ref().or(queue.dead_letter_routing_key.as_ref())
            {
                let what = "dead letters go to the `dead_letter_queue`; leave one of the two out";
                self.wrong(other.at(), what);
            }
        } else if let (Some(key), None) = (&queue.dead_letter_routing_key, &queue.dead_letter_exchange) {
            let what = "there is no exchange that would route by it; name the `dead_letter_exchange`, too, or leave it out";
            self.wrong(key.at(), what);
        }
        if let Some(limit) = queue.delivery_limit.as_ref().filter(|_| queue.declare != Some(Declare::Quorum))
        {
            let what = "only a quorum queue that is declared here has one; add `declare = \"quorum\"`, or leave it out";
            self.wrong(limit.at(), what);
        }
        let nowhere = |name: &&Located<String>| name.is_empty() && queue.dead_letter_routing_key.is_none();
        if let Some(exchange) = queue.dead_letter_exchange.as_ref().filter(nowhere) {
            let what = "the default exchange would bring dead letters back to the queue, or nowhere; name another exchange, or \
                        a `dead_letter_routing_key` too: the queue they go to";
            self.wrong(exchange.at(), what);
        }
        match (&queue.rejected_exchange, &queue.rejected_routing_key) {
            (None, Some(key)) => {
                let what = "nothing is published by this key without a `rejected_exchange`; add it, or leave this out";
                self.wrong(key.at(), what);
            }
            (Some(exchange), None) if exchange.is_empty() => {
                let what = "the default exchange needs a `rejected_routing_key`: the queue that they go to";
                self.wrong(exchange.at(), what);
            }
            _ => {}
        }
    }

    /// A message whose source and inbox do not agree on tenants would be refused, every one of them.
    pub(super) fn check_tenants(&mut self, name: &Located<String>, inbox: &model::InboxTable) {
        let http = inbox.http.iter().map(|(name, source)| (name, source.tenant.as_ref()));
        let queues = inbox.rabbitmq.iter().map(|(name, source)| (name, source.tenant.as_ref()));
        if let Some(tenant) = &inbox.adopted_tenant {
            if tenant.trim().is_empty() {
                self.wrong(tenant.at(), "a tenant has a name; name it, or leave this out");
            } else if inbox.tenants != Some(model::TenantsSetting::Required) {
                let what =
                    "the messages of this tenant would meet those without one; set `tenants = \"required\"`";
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
                    let what = "the inbox has no tenants; set `tenants = \"optional\"` or \"required\" for it, or leave this out";
                    self.wrong(tenant.at(), what);
                }
                (Some(model::TenantsSetting::Required), None) => {
                    let what = "every message of this inbox belongs to a tenant, and this source names none; add `tenant = \"..\"` \
                                to the source, or set `tenants = \"optional\"`";
                    self.wrong(source.at(), what);
                }
                _ => {}
            }
        }
    }

    /// What a handler has forgotten earlier than the others would be taken for what it never had.
    pub(super) fn check_backfill(&mut self, inbox: &model::InboxTable) {
        let forgets = inbox.handler.values().any(|handler| handler.retention.is_some());
        let wanted = inbox.handler.values().filter_map(|handler| handler.backfill.as_ref());
        for backfill in wanted.filter(|wanted| ***wanted && forgets) {
            let what = "handlers of this inbox have a `retention` of their own, and would get again what they have forgotten; \
                        leave one of the two out";
            self.wrong(backfill.at(), what);
        }
    }

    /// Refuses a source that may bring a message again after it was forgotten, or notes a warning.
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
                "the source {name:?} may bring a message again after {again}, and it is remembered for {kept}; set \
                 `retention` to more"
            );
            match inbox.config.short_window {
                ShortWindow::Warn => inbox.warnings.push(what),
                _ => self.wrong(at, format!("{what}, or `short_window = \"warn\"`")),
            }
        }
    }

    /// Two sources with one name would share their ids, and two endpoints at one path would be one.
    pub(super) fn sources(&mut self, inboxes: &[InboxPlan]) {
        let mut names: BTreeMap<&str, &str> = BTreeMap::new();
        let mut paths: BTreeMap<&str, &str> = BTreeMap::new();
        for inbox in inboxes {
            let http = inbox.http.iter().map(|http| (&http.name, http.at, Some(&http.path)));
            let queues = inbox.rabbitmq.iter().map(|queue| (&queue.name, queue.at, None));
            for (name, at, path) in http.chain(queues) {
                if let Some(other) = names.insert(name, &inbox.name) {
                    let what =
                        format!("the inbox {other:?} has a source of this name too; give each its own");
                    self.wrong(at, what);
                } else if let Some(other) = path.and_then(|path| paths.insert(path, name)) {
                    self.wrong(at, format!("{other:?} has the same path; give each endpoint its own"));
                }
            }
        }
    }
}
