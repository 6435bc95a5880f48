//! One address that receives messages. Tests: tests/configured.rs and tests/answers.rs.

use std::time::Duration;

use http::HeaderName;
use oncebox::{Error, ErrorKind, MAX_NAME, Result};

use crate::format::{BodyFormat, HeaderNames, ShopifyId};
use crate::quota::Quota;
use crate::verify::{REPLAY_WINDOW, Verify};

/// An address that receives messages, with its proof, its format and its limits.
///
/// Its name is the [source](oncebox::Message::source) of every message it receives. The source is part of the key, so
/// senders of one endpoint cannot use up the ids of another.
///
/// ```
/// use oncebox_http::{Endpoint, Quota, Verify};
///
/// # fn main() -> oncebox::Result<()> {
/// let github = Endpoint::github("github", ["a secret", "the one before it"])?;
/// let shop = Endpoint::cloud_events("shop").verify(Verify::tokens(["a-token"])?).quota(Quota::per_second(500));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Endpoint {
    pub(crate) name: Box<str>,
    pub(crate) path: Box<str>,
    pub(crate) format: BodyFormat,
    pub(crate) verify: Option<Verify>,
    pub(crate) tenant: Option<Box<str>>,
    pub(crate) message_type: Option<Box<str>>,
    pub(crate) max_body: usize,
    pub(crate) max_batch: usize,
    pub(crate) quota: Option<Quota>,
    pub(crate) window: Duration,
}

impl Endpoint {
    fn new(name: impl Into<Box<str>>, format: BodyFormat, verify: Option<Verify>) -> Self {
        let name = name.into();
        Self {
            path: format!("/{name}").into(),
            name,
            format,
            verify,
            tenant: None,
            message_type: None,
            max_body: usize::MAX,
            max_batch: 1_000,
            quota: None,
            window: REPLAY_WINDOW,
        }
    }

    /// Any body. The id is in the header `message-id`, the type in `message-type`, an optional ordering key in
    /// `message-ordering-key`. Set [`verify`](Self::verify) first: senders must authenticate.
    pub fn plain(name: impl Into<Box<str>>) -> Self {
        let names = HeaderNames {
            id: HeaderName::from_static("message-id"),
            message_type: HeaderName::from_static("message-type"),
            order: HeaderName::from_static("message-ordering-key"),
        };
        Self::new(name, BodyFormat::Plain(names), None)
    }

    /// CloudEvents 1.0, one or many in a request. Source and id together are the key, `partitionkey` is the ordering
    /// key. Set [`verify`](Self::verify) first: senders must authenticate.
    pub fn cloud_events(name: impl Into<Box<str>>) -> Self {
        Self::new(name, BodyFormat::CloudEvents, None)
    }

    /// [Standard Webhooks](https://www.standardwebhooks.com): secrets that start with `whsec_`, or public keys that start
    /// with `whpk_`. `webhook-id` or `svix-id` is the key; the type is the member `type` of the body.
    pub fn standard_webhooks<T: AsRef<str>>(
        name: impl Into<Box<str>>,
        secrets: impl IntoIterator<Item = T>,
    ) -> Result<Self> {
        Ok(Self::new(name, BodyFormat::Standard, Some(Verify::standard_webhooks(secrets)?)))
    }

    /// Webhooks of GitHub. `X-GitHub-Delivery` is the key, `X-GitHub-Event` the type. The payload is the JSON, even if
    /// GitHub sends it in a form.
    pub fn github<T: AsRef<[u8]>>(
        name: impl Into<Box<str>>,
        secrets: impl IntoIterator<Item = T>,
    ) -> Result<Self> {
        Ok(Self::new(name, BodyFormat::GitHub, Some(Verify::github(secrets)?)))
    }

    /// Webhooks of Stripe. The event's `id` is the key, its `type` the type. Stripe rewrites the other fields for each
    /// attempt, so a repeat is compared by `data` alone.
    pub fn stripe<T: AsRef<[u8]>>(
        name: impl Into<Box<str>>,
        secrets: impl IntoIterator<Item = T>,
    ) -> Result<Self> {
        Ok(Self::new(name, BodyFormat::Stripe, Some(Verify::stripe(secrets)?)))
    }

    /// Events of Slack. `event_id` is the key, the type of the inner event is the type. The endpoint completes the
    /// challenge with which Slack registers the address.
    pub fn slack<T: AsRef<[u8]>>(
        name: impl Into<Box<str>>,
        secrets: impl IntoIterator<Item = T>,
    ) -> Result<Self> {
        Ok(Self::new(name, BodyFormat::Slack, Some(Verify::slack(secrets)?)))
    }

    /// Webhooks of Shopify. `X-Shopify-Event-Id` with the topic is the key, unless [configured
    /// otherwise](Self::shopify_id). `X-Shopify-Topic` is the type.
    pub fn shopify<T: AsRef<[u8]>>(
        name: impl Into<Box<str>>,
        secrets: impl IntoIterator<Item = T>,
    ) -> Result<Self> {
        Ok(Self::new(name, BodyFormat::Shopify(ShopifyId::default()), Some(Verify::shopify(secrets)?)))
    }

    /// Sets the Shopify id that identifies a repeat. Default: [`ShopifyId::Event`]. After a change, every message that
    /// Shopify sends again counts as new.
    pub fn shopify_id(mut self, id: ShopifyId) -> Result<Self> {
        let BodyFormat::Shopify(by) = &mut self.format else {
            return Err(
                self.refused("takes no webhooks of Shopify, so it cannot be told which of their ids counts")
            );
        };
        *by = id;
        Ok(self)
    }

    /// Sets the proof that senders must give.
    pub fn verify(mut self, verify: Verify) -> Self {
        self.verify = Some(verify);
        self
    }

    /// Sets the path below the prefix of all endpoints. Default: `/` and the name.
    pub fn path(mut self, path: impl Into<Box<str>>) -> Self {
        self.path = path.into();
        self
    }

    /// Sets the tenant of all messages, for an inbox that serves several customers.
    pub fn tenant(mut self, tenant: impl Into<Box<str>>) -> Self {
        self.tenant = Some(tenant.into());
        self
    }

    /// Sets one type for all messages and ignores the sender's. Not for CloudEvents, which have a type of their own.
    pub fn message_type(mut self, message_type: impl Into<Box<str>>) -> Self {
        self.message_type = Some(message_type.into());
        self
    }

    /// Sets the header with the id of a plain message.
    pub fn id_header(self, name: &str) -> Result<Self> {
        self.rename(name, |names| &mut names.id)
    }

    /// Sets the header with the type of a plain message.
    pub fn type_header(self, name: &str) -> Result<Self> {
        self.rename(name, |names| &mut names.message_type)
    }

    /// Sets the header with the ordering key of a plain message.
    pub fn order_header(self, name: &str) -> Result<Self> {
        self.rename(name, |names| &mut names.order)
    }

    fn rename(mut self, name: &str, slot: impl Fn(&mut HeaderNames) -> &mut HeaderName) -> Result<Self> {
        let BodyFormat::Plain(names) = &mut self.format else {
            return Err(self.refused("reads its own headers; only a plain endpoint can be told others"));
        };
        match HeaderName::try_from(name) {
            Ok(name) => *slot(names) = name,
            Err(_) => return Err(self.refused(&format!("cannot read {name:?}: that is no name of a header"))),
        }
        Ok(self)
    }

    /// Sets the maximum bytes of a body, if it is less than the [limit of all endpoints](crate::BodyLimits::max).
    pub fn max_body(mut self, bytes: usize) -> Self {
        self.max_body = bytes;
        self
    }

    /// Sets the maximum messages of one request. Default: 1,000.
    pub fn max_batch(mut self, messages: usize) -> Self {
        self.max_batch = messages;
        self
    }

    /// Sets the rate limit of all senders of this endpoint together. Default: none.
    pub fn quota(mut self, quota: Quota) -> Self {
        self.quota = Some(quota);
        self
    }

    /// Sets the maximum age of a signature, and its maximum time in the future. Default: 5 minutes. The key identifies
    /// a message that is sent again within this time. GitHub and Shopify sign no time.
    pub fn replay_window(mut self, window: Duration) -> Self {
        self.window = window;
        self
    }

    /// Returns the source of its messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns true if the endpoint verifies no sender.
    pub fn is_open(&self) -> bool {
        self.verify.as_ref().is_some_and(Verify::is_open)
    }

    fn refused(&self, why: &str) -> Error {
        Error::new(ErrorKind::InvalidConfig, format!("the endpoint {:?} {why}", self.name))
    }

    pub(crate) fn check(&self) -> Result<()> {
        let refuse = |why: &str| Err(self.refused(why));
        let plain = |c: u8| c.is_ascii_alphanumeric() || b"-_.".contains(&c);
        if self.name.is_empty() || self.name.len() > MAX_NAME || !self.name.bytes().all(plain) {
            return refuse("has a name that none can have: letters, digits and - _ . are allowed");
        }
        let path = self.path.strip_prefix('/').unwrap_or_default();
        if path.is_empty() || !path.bytes().all(|c| plain(c) || b"/~".contains(&c)) {
            return refuse(&format!(
                "cannot have the path {:?}: it begins with / and holds letters, digits and - _ . ~ /",
                self.path
            ));
        }
        if self.verify.is_none() {
            return refuse("does not say who may send: give it tokens, a signature, or `Verify::loopback()`");
        }
        if self.message_type.is_some() && matches!(self.format, BodyFormat::CloudEvents) {
            return refuse("takes CloudEvents, which have a type of their own: leave `message_type` out");
        }
        if self.message_type.as_deref().is_some_and(str::is_empty)
            || self.tenant.as_deref().is_some_and(str::is_empty)
        {
            return refuse("has an empty type or tenant: leave it out instead");
        }
        if self.max_body == 0 || self.max_batch == 0 || self.quota.is_some_and(|quota| !quota.is_valid()) {
            return refuse("takes nothing: its limits and its quota must be more than zero");
        }
        Ok(())
    }
}
