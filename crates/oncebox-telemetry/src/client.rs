//! HTTP client of the exporters. They send from their own threads without a Tokio runtime, so the client brings one.
//! Tests: `tests/otlp.rs`.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use opentelemetry_http::{HttpClient, HttpError, Request, Response};
use tokio::runtime::Handle;

/// Timeout of a request to the collector. The exporters retry.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum bytes of a response.
const MAX_ANSWER: usize = 1 << 20;

#[derive(Clone, Debug)]
pub(crate) struct OtlpClient {
    client: reqwest::Client,
    runtime: Handle,
}

impl OtlpClient {
    pub(crate) fn new(runtime: Handle) -> Result<Self, reqwest::Error> {
        // The first caller chose the provider, which is the same everywhere.
        let _ = rustls::crypto::ring::default_provider().install_default();
        // The operator named this collector, so the client follows no redirect.
        let redirects = reqwest::redirect::Policy::none();
        let client = reqwest::Client::builder().timeout(TIMEOUT).redirect(redirects).build()?;
        Ok(Self { client, runtime })
    }
}

#[async_trait]
impl HttpClient for OtlpClient {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let client = self.client.clone();
        let sending = self.runtime.spawn(async move {
            let (parts, body) = request.into_parts();
            let sent = client.request(parts.method, parts.uri.to_string()).headers(parts.headers).body(body);
            let mut answer = sent.send().await.map_err(reqwest::Error::without_url)?;
            let mut read = Vec::new();
            while let Some(chunk) = answer.chunk().await.map_err(reqwest::Error::without_url)? {
                let room = MAX_ANSWER - read.len();
                read.extend_from_slice(&chunk[..chunk.len().min(room)]);
                if read.len() == MAX_ANSWER {
                    break;
                }
            }
            let mut response = Response::new(Bytes::from(read));
            *response.status_mut() = answer.status();
            *response.headers_mut() = answer.headers().clone();
            Ok::<_, reqwest::Error>(response)
        });
        Ok(sending.await??)
    }
}
