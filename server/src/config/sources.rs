//! Where messages come from, checked.

use std::collections::BTreeMap;
use std::time::Duration;

use super::model::{self, Encoding, Format, Verify};
use super::plan::{InboxPlan, Planner};
use super::value::At;

/// What all endpoints are below.
pub(crate) const PREFIX: &str = "/in";

/// An endpoint that messages are posted to. Never shows its secrets.
#[derive(Clone)]
pub(crate) struct HttpPlan {
    pub(crate) name: String,
    at: usize,
    pub(crate) path: String,
    pub(crate) format: Format,
    pub(crate) verify: Verify,
    pub(crate) secrets: Vec<String>,
    pub(crate) signature: (String, String, Encoding),
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
    pub(super) fn near(inbox: &At<String>) -> Self {
        Self {
            name: inbox.to_string(),
            at: inbox.at(),
            path: format!("/{}", inbox.as_str()),
            format: Format::Plain,
            verify: Verify::Loopback,
            secrets: Vec::new(),
            signature: (String::new(), String::new(), Encoding::Hex),
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
        !matches!(self.format, Format::Plain | Format::CloudEvents)
    }

    /// What it takes, and from whom, for people.
    pub(crate) fn describe(&self) -> String {
        let format = match self.format {
            Format::Plain => "any body",
            Format::CloudEvents => "CloudEvents",
            Format::StandardWebhooks => "Standard Webhooks",
            Format::Github => "GitHub",
            Format::Stripe => "Stripe",
            Format::Slack => "Slack",
            Format::Shopify => "Shopify",
        };
        let from = match self.verify {
            _ if self.is_webhook() => "signed",
            Verify::Loopback => "from this machine",
            Verify::Token => "with a token",
            Verify::StandardWebhooks | Verify::Hmac => "signed",
            Verify::Open => "from anybody",
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
    pub(crate) settings: model::Rabbitmq,
    pub(crate) ca: Option<String>,
}

impl std::fmt::Debug for RabbitmqPlan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RabbitmqPlan").field("queue", &self.queue).finish_non_exhaustive()
    }
}

impl Planner {
    pub(super) fn http(&mut self, name: &At<String>, http: &model::Http) -> HttpPlan {
        let secrets = self.read_all(http.secret.as_ref());
        let text = |set: &Option<At<String>>| set.as_deref().cloned();
        let encoding = http.signature_encoding.as_deref().copied().unwrap_or(Encoding::Hex);
        let signature = (
            text(&http.signature_header).unwrap_or_default(),
            text(&http.signature_prefix).unwrap_or_default(),
            encoding,
        );
        let plan = HttpPlan {
            name: name.to_string(),
            at: name.at(),
            path: text(&http.path).unwrap_or_else(|| format!("/{}", name.as_str())),
            format: http.format.as_deref().copied().unwrap_or(Format::Plain),
            verify: http.verify.as_deref().copied().unwrap_or(Verify::Loopback),
            assumed: secrets.is_empty() && http.secret.is_some(),
            secrets,
            signature,
            replay_window: http.replay_window.as_ref().map(|span| span.0),
            kind: text(&http.kind),
            tenant: text(&http.tenant),
            quota: http.quota.as_ref().map(|rate| rate.0.clone()),
        };
        self.check_http(name, http, &plan);
        plan
    }

    fn check_http(&mut self, name: &At<String>, http: &model::Http, plan: &HttpPlan) {
        let at = http.verify.as_ref().map_or(name.at(), At::at);
        if plan.is_webhook() && http.verify.is_some() {
            self.wrong(at, "these webhooks are signed in their own way; leave `verify` out");
        }
        let wants = plan.is_webhook() || !matches!(plan.verify, Verify::Loopback | Verify::Open);
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
        let hmac = plan.verify == Verify::Hmac;
        if hmac && http.signature_header.is_none() {
            self.wrong(at, "`signature_header` is missing: which header is the signature in?");
        }
        if let Some(header) = http.signature_header.as_ref().filter(|_| !hmac) {
            self.wrong(header.at(), "this is for `verify = \"hmac\"`; leave it out");
        }
        if let (Format::CloudEvents, Some(kind)) = (plan.format, &http.kind) {
            self.wrong(kind.at(), "CloudEvents have a type of their own; leave it out");
        }
    }

    pub(super) fn rabbitmq(&mut self, name: &At<String>, queue: &model::Rabbitmq) -> RabbitmqPlan {
        let url = self.guarded(&queue.url);
        if url.as_ref().is_some_and(|url| !(url.starts_with("amqp://") || url.starts_with("amqps://"))) {
            self.wrong(
                queue.url.at(),
                "this is no URL of RabbitMQ; it starts with \"amqp://\" or \"amqps://\"",
            );
        }
        let lost = queue.dead_letter_exchange.is_none() && queue.rejected_exchange.is_none();
        if lost && queue.discard_rejected != Some(true) {
            let what = "a message that can never be taken would be lost; name the `dead_letter_exchange` of the queue, say where \
                        they go with `rejected_exchange`, or set `discard_rejected = true`";
            self.wrong(queue.queue.at(), what);
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
