//! Delivers messages to HTTP endpoints, with one request per attempt. Tests: `tests/serve/responses.rs` and `network.rs`.

mod descriptors;
mod headers;
mod network;
mod resolve;
mod response;
mod sign;

use std::error::Error as _;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result};
use oncebox::{BoxError, Context, Message, Registration, Snooze, Store, handler};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Certificate, Client, Url};

use descriptors::{DESCRIPTORS_AGAIN, DescriptorsLog, lacks_descriptors};
use headers::DeliveryRun;

pub(crate) use network::{Allowed, Network};
pub(crate) use resolve::{Refused, check_url};
pub(crate) use response::On4xx;
pub(crate) use sign::Signer;

/// Time limit for a connection. The whole request has the timeout of the handler.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Time that an idle connection stays open.
const IDLE_TIMEOUT: Duration = Duration::from_mins(1);

/// An HTTP endpoint and its settings.
#[derive(Clone, Debug)]
pub(crate) struct HandlerEndpoint {
    pub(crate) url: Url,
    pub(crate) timeout: Duration,
    pub(crate) on_4xx: On4xx,
    pub(crate) allowed: Allowed,
    pub(crate) signer: Signer,
    /// Headers of every request.
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    /// Headers of the message to forward.
    pub(crate) forward: Vec<HeaderName>,
    /// Certificates to trust besides those of the system.
    pub(crate) roots: Vec<Certificate>,
}

/// Delivers messages to one endpoint.
struct Courier {
    client: Client,
    inbox: String,
    endpoint: HandlerEndpoint,
    descriptors_log: DescriptorsLog,
}

/// Returns a handler with `key` that delivers to an endpoint.
pub(crate) fn deliver_to<S: Store>(
    inbox: &str,
    key: &str,
    endpoint: HandlerEndpoint,
) -> Result<Registration<S>> {
    let client = client(&endpoint).context("cannot create the HTTP client")?;
    let descriptors_log = DescriptorsLog::default();
    let courier = Arc::new(Courier { client, inbox: inbox.to_owned(), endpoint, descriptors_log });
    let run = for_every_context(move |message: Message, cx: &mut Context<S>| {
        let (courier, run) = (Arc::clone(&courier), courier.run(cx));
        async move { courier.deliver(&message, &run).await }
    });
    Ok(handler(key, run))
}

/// Tells the compiler that a closure takes a context of any lifetime.
fn for_every_context<S, F, Fut>(function: F) -> F
where
    S: Store,
    F: for<'a> Fn(Message, &'a mut Context<S>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(), BoxError>> + Send + 'static,
{
    function
}

fn client(endpoint: &HandlerEndpoint) -> reqwest::Result<Client> {
    let mut builder = Client::builder();
    if !endpoint.roots.is_empty() {
        builder = builder.tls_certs_merge(endpoint.roots.iter().cloned());
    }
    builder
        .dns_resolver(Arc::new(resolve::Resolver(Arc::new(endpoint.allowed.clone()))))
        .redirect(reqwest::redirect::Policy::none())
        // A proxy would resolve the name without our check of its address.
        .no_proxy()
        .referer(false)
        .connect_timeout(CONNECT_TIMEOUT.min(endpoint.timeout))
        .pool_idle_timeout(IDLE_TIMEOUT)
        .tcp_keepalive(IDLE_TIMEOUT)
        .user_agent(concat!("oncebox/", env!("CARGO_PKG_VERSION")))
        .build()
}

impl Courier {
    /// Returns the attributes of a run.
    fn run<S: Store>(&self, cx: &Context<S>) -> DeliveryRun {
        DeliveryRun {
            inbox: self.inbox.clone(),
            handler: cx.handler().to_string(),
            attempt: cx.attempt(),
            fence: cx.fence(),
            // The effect is the delivery itself.
            idempotency_key: cx.idempotency_key("deliver"),
            key: cx.key().to_string(),
        }
    }

    async fn deliver(&self, message: &Message, run: &DeliveryRun) -> Result<(), BoxError> {
        let HandlerEndpoint { url, timeout, on_4xx, allowed, .. } = &self.endpoint;
        // The resolver never sees an address.
        check_url(allowed, url)?;
        let request = self.client.post(url.clone()).headers(self.headers(message, run));
        let sent = tokio::time::timeout(*timeout, request.body(message.payload().clone()).send()).await;
        let response = sent.map_err(|_| format!("the handler did not respond within {timeout:?}"))?;
        let response = match response {
            Ok(response) => response,
            Err(error) if lacks_descriptors(&error) => return Err(self.no_descriptors()),
            Err(error) => return Err(failed(&error).into()),
        };
        response::outcome(response, *on_4xx).await
    }

    /// Postpones the delivery without counting an attempt, because no request was sent.
    fn no_descriptors(&self) -> BoxError {
        let wait = DESCRIPTORS_AGAIN.mul_f64(1.0 + fastrand::f64());
        if self.descriptors_log.allow() {
            tracing::warn!(
                inbox = self.inbox,
                advice = "raise the limit (`ulimit -n`, `LimitNOFILE`)",
                "no file descriptor for a delivery"
            );
        }
        Snooze(wait).into()
    }

    fn headers(&self, message: &Message, run: &DeliveryRun) -> HeaderMap {
        let mut all = headers::headers(message, run, &self.endpoint.forward);
        // With exported spans, ours becomes the parent of the handler's.
        oncebox_telemetry::inject(&mut all);
        let signed = self.endpoint.signer.sign(&run.idempotency_key, message.payload(), SystemTime::now());
        for (name, value) in signed.into_iter().flatten() {
            if let Ok(value) = HeaderValue::from_str(&value) {
                all.insert(name, value);
            }
        }
        for (name, value) in &self.endpoint.headers {
            all.insert(name.clone(), value.clone());
        }
        all
    }
}

/// Describes a failed request, without the URL, which may contain a token.
fn failed(error: &reqwest::Error) -> String {
    let causes = || std::iter::successors(error.source(), |&error| error.source());
    if let Some(refused) = causes().find_map(|cause| cause.downcast_ref::<Refused>()) {
        return refused.to_string();
    }
    let what =
        if error.is_connect() { "cannot connect to the handler" } else { "no response from the handler" };
    // The innermost cause names the error; the outer ones name layers of the client.
    causes().last().map_or_else(|| what.to_owned(), |cause| format!("{what}: {cause}"))
}
