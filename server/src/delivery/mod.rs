//! Handlers that are HTTP endpoints: one request for each attempt, and what the answer means.

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

/// How long a connection may take to be there; the whole request has the handler's own timeout.
const CONNECT: Duration = Duration::from_secs(10);
/// How long a connection that nobody uses is kept.
const IDLE: Duration = Duration::from_mins(1);

/// An endpoint, and how messages are delivered to it.
#[derive(Clone, Debug)]
pub(crate) struct HandlerEndpoint {
    pub(crate) url: Url,
    pub(crate) timeout: Duration,
    pub(crate) on_4xx: On4xx,
    pub(crate) allowed: Allowed,
    pub(crate) signer: Signer,
    /// Headers that every request has.
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    /// Headers of the message that are passed on.
    pub(crate) forward: Vec<HeaderName>,
    /// Certificates that are trusted beside the system's.
    pub(crate) roots: Vec<Certificate>,
}

/// Delivers to one endpoint.
struct Courier {
    client: Client,
    inbox: String,
    endpoint: HandlerEndpoint,
    descriptors_log: DescriptorsLog,
}

/// A handler under `key` that delivers to an endpoint.
pub(crate) fn deliver_to<S: Store>(
    inbox: &str,
    key: &str,
    endpoint: HandlerEndpoint,
) -> Result<Registration<S>> {
    let client = client(&endpoint).context("cannot make an HTTP client")?;
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
        // A proxy would resolve the name where nobody checks the answer.
        .no_proxy()
        .referer(false)
        .connect_timeout(CONNECT.min(endpoint.timeout))
        .pool_idle_timeout(IDLE)
        .tcp_keepalive(IDLE)
        .user_agent(concat!("oncebox/", env!("CARGO_PKG_VERSION")))
        .build()
}

impl Courier {
    /// What a run says of itself.
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
        // An address is not resolved, so nothing else looks at it.
        check_url(allowed, url)?;
        let request = self.client.post(url.clone()).headers(self.headers(message, run));
        let sent = tokio::time::timeout(*timeout, request.body(message.payload().clone()).send()).await;
        let response = sent.map_err(|_| format!("the handler did not answer within {timeout:?}"))?;
        let response = match response {
            Ok(response) => response,
            Err(error) if lacks_descriptors(&error) => return Err(self.no_descriptors()),
            Err(error) => return Err(failed(&error).into()),
        };
        response::judge(response, *on_4xx).await
    }

    /// The handler was never asked: no attempt is counted.
    fn no_descriptors(&self) -> BoxError {
        let wait = DESCRIPTORS_AGAIN.mul_f64(1.0 + fastrand::f64());
        if self.descriptors_log.allow() {
            tracing::warn!(
                inbox = self.inbox,
                "no file descriptor for a delivery: it is tried again, and no attempt is counted; raise the limit (`ulimit -n`, `LimitNOFILE`)"
            );
        }
        Snooze(wait).into()
    }

    fn headers(&self, message: &Message, run: &DeliveryRun) -> HeaderMap {
        let mut all = headers::headers(message, run, &self.endpoint.forward);
        // Where spans are exported, ours stands between the producer's and the handler's.
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

/// Why there was no answer, without the URL: it may hold a token, and the handler's key says which one it is.
fn failed(error: &reqwest::Error) -> String {
    let causes = || std::iter::successors(error.source(), |&error| error.source());
    if let Some(refused) = causes().find_map(|cause| cause.downcast_ref::<Refused>()) {
        return refused.to_string();
    }
    let what =
        if error.is_connect() { "cannot connect to the handler" } else { "no answer from the handler" };
    // The innermost cause says it; what is around it says where in the client it was noticed.
    causes().last().map_or_else(|| what.to_owned(), |cause| format!("{what}: {cause}"))
}
