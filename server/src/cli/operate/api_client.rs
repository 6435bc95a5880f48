//! An [`OperatorClient`] through the API of a running sidecar. Tests: `tests/serve/api/commands.rs`.

use std::time::Duration;

use anyhow::Context as _;
use async_trait::async_trait;
use oncebox::time::{Clock as _, SystemClock};
use oncebox::{InboxName, Key};
use reqwest::{Client, StatusCode, Url};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::CommandError;
use super::target::usage;
use crate::api::routes::{ApiCall, Method};
use crate::cli::{Exit, out};
use crate::config::secret;
use crate::operator::{
    BackfillPlan, DoctorQuery, OperatorClient, OperatorError, OperatorResult, ProgressFn, wire,
};

/// Time limit of a request.
const REQUEST_TIMEOUT: Duration = Duration::from_mins(1);
/// Time between two progress requests for a long operation.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Environment variable of the token, unless `--token` is set.
const TOKEN: &str = "ONCEBOX_TOKEN";

pub(super) struct ApiClient {
    client: Client,
    base: Url,
    token: Option<String>,
    inbox: InboxName,
}

impl ApiClient {
    pub(super) fn new(url: &str, token: Option<&str>, inbox: InboxName) -> Result<Self, CommandError> {
        let no_url = || usage("--api is not a valid URL; write it like http://127.0.0.1:8472");
        let mut base = Url::parse(url).map_err(|_| no_url())?;
        if !matches!(base.scheme(), "http" | "https") || base.host().is_none() {
            return Err(no_url());
        }
        if !base.username().is_empty() || base.password().is_some() {
            return Err(usage("--api contains a user or password; use a token with --token env:NAME"));
        }
        base.set_path("");
        base.set_query(None);
        let token = match token {
            Some(named) => Some(secret(named).map_err(usage)?),
            None => std::env::var(TOKEN).ok().filter(|token| !token.is_empty()),
        };
        let here = base.host_str().is_some_and(|host| matches!(host, "127.0.0.1" | "localhost" | "[::1]"));
        if token.is_some() && base.scheme() == "http" && !here {
            out::eprint_note("oncebox: warning: the token is sent unencrypted; use https");
        }
        // A redirect could send the token to another host.
        let client =
            Client::builder().timeout(REQUEST_TIMEOUT).redirect(reqwest::redirect::Policy::none()).build();
        let client =
            client.context("cannot create the HTTP client").map_err(|error| Exit::Start.with(error))?;
        Ok(Self { client, base, token, inbox })
    }

    async fn get<Q: Serialize, A: DeserializeOwned>(
        &self,
        call: ApiCall,
        parts: &[(&str, &str)],
        query: &Q,
    ) -> OperatorResult<A> {
        self.send(call, parts, query, None).await
    }

    async fn post<B: Serialize, A: DeserializeOwned>(
        &self,
        call: ApiCall,
        parts: &[(&str, &str)],
        body: &B,
    ) -> OperatorResult<A> {
        let body = serde_json::to_vec(body).map_err(|error| unencodable(&error))?;
        self.send(call, parts, &(), Some(body)).await
    }

    async fn send<Q: Serialize, A: DeserializeOwned>(
        &self,
        call: ApiCall,
        parts: &[(&str, &str)],
        query: &Q,
        body: Option<Vec<u8>>,
    ) -> OperatorResult<A> {
        let route = call.route();
        let parts: Vec<_> = parts.iter().copied().chain([("inbox", self.inbox.as_str())]).collect();
        let mut url = self.base.clone();
        url.set_path(&route.url_path(&parts));
        add_query(&mut url, query)?;
        let mut request = match route.method {
            Method::Get => self.client.get(url),
            Method::Post => self.client.post(url).header("content-type", "application/json"),
        };
        if let Some(token) = &self.token {
            request = request.bearer_auth(token);
        }
        if let Some(body) = body {
            request = request.body(body);
        }
        let changes = !route.is_read();
        let response = request.send().await.map_err(|error| self.no_response(&error, changes))?;
        let status = response.status();
        let bytes = response.bytes().await.map_err(|error| self.no_response(&error, changes))?;
        if !status.is_success() {
            return Err(refused(status, &bytes, changes));
        }
        serde_json::from_slice(&bytes).map_err(|error| {
            OperatorError::Lost(format!(
                "{} sent a response that this build cannot read; use the build of the server: {error}",
                self.base
            ))
        })
    }

    fn no_response(&self, error: &reqwest::Error, changes: bool) -> OperatorError {
        let base = &self.base;
        // The innermost cause, without the URL.
        let mut why = String::new();
        let mut cause = std::error::Error::source(error);
        while let Some(inner) = cause {
            why = format!(": {inner}");
            cause = inner.source();
        }
        if error.is_connect() {
            let what = format!("cannot connect to {base}{why}; check that `oncebox serve` runs there");
            return OperatorError::Unreachable(what);
        }
        let advice = if changes {
            "the change may have been stored; retry with the same --operation"
        } else {
            "retry"
        };
        OperatorError::Lost(format!("{base} did not respond{why}; {advice}"))
    }

    /// Polls the progress of an operation until it has ended.
    async fn watch(
        &self,
        mut now: wire::BulkReport,
        on_progress: ProgressFn<'_>,
    ) -> OperatorResult<wire::BulkReport> {
        let clock = SystemClock::default();
        let id = now.operation.0.to_string();
        loop {
            on_progress(&now);
            if matches!(now.state.as_str(), "finished" | "capped" | "stopped") {
                return Ok(now);
            }
            // Interrupted, or stopped by another operator.
            if !now.active {
                let what = format!(
                    "operation {id} no longer runs in that process; continue it with --operation {id}"
                );
                return Err(OperatorError::Lost(what));
            }
            clock.sleep(POLL_INTERVAL).await;
            let polled: wire::OperationProgress =
                self.get(ApiCall::Operation, &[("operation", &id)], &()).await?;
            let unknown = || {
                let what =
                    format!("the server returned no progress of operation {id}; check `oncebox audit`");
                OperatorError::Lost(what)
            };
            now = polled.report.ok_or_else(unknown)?;
        }
    }
}

/// Adds parameters to a URL. Repeats a list once per item and omits null.
fn add_query<Q: Serialize>(url: &mut Url, query: &Q) -> OperatorResult<()> {
    let values = serde_json::to_value(query).map_err(|error| unencodable(&error))?;
    let Value::Object(values) = values else { return Ok(()) };
    if values.is_empty() {
        return Ok(());
    }
    let mut pairs = url.query_pairs_mut();
    for (name, value) in values {
        let many = match value {
            Value::Array(many) => many,
            one => vec![one],
        };
        for value in many {
            match value {
                Value::Null => {}
                Value::String(text) => {
                    pairs.append_pair(&name, &text);
                }
                other => {
                    pairs.append_pair(&name, &other.to_string());
                }
            }
        }
    }
    Ok(())
}

fn unencodable(error: &serde_json::Error) -> OperatorError {
    OperatorError::Invalid(format!("cannot encode the request: {error}"))
}

/// Converts an error response. The response to a read does not say what was kept.
fn refused(status: StatusCode, body: &[u8], changes: bool) -> OperatorError {
    let what = match serde_json::from_slice::<wire::ProblemDocument>(body) {
        Ok(problem) if changes => format!("{}: {}; {}", problem.detail, problem.kept, problem.advice),
        Ok(problem) => format!("{}; {}", problem.detail, problem.advice),
        Err(_) => {
            format!(
                "the server responded with {status} and no reason; check that `oncebox serve` listens there"
            )
        }
    };
    OperatorError::Refused(status.as_u16(), what)
}

#[async_trait]
impl OperatorClient for ApiClient {
    async fn counts(&self, tenant: Option<&str>) -> OperatorResult<wire::InboxTotals> {
        self.get(ApiCall::Counts, &[], &wire::TenantQuery { tenant: tenant.map(Into::into) }).await
    }

    async fn entries(&self, query: &wire::EntriesQuery) -> OperatorResult<wire::EntryList> {
        self.get(ApiCall::Entries, &[], query).await
    }

    async fn message(&self, key: &Key) -> OperatorResult<wire::MessageDetails> {
        self.get(ApiCall::Message, &[("key", &key.to_string())], &()).await
    }

    async fn payloads(&self, key: &Key) -> OperatorResult<wire::MessagePayloads> {
        self.get(ApiCall::Payload, &[("key", &key.to_string())], &()).await
    }

    async fn explain(&self, key: &Key) -> OperatorResult<wire::MessageExplanation> {
        self.get(ApiCall::Explain, &[("key", &key.to_string())], &()).await
    }

    async fn quarantined(&self, query: &wire::QuarantineQuery) -> OperatorResult<wire::QuarantineList> {
        self.get(ApiCall::Quarantine, &[], query).await
    }

    async fn blocked(&self, query: &wire::BlockedQuery) -> OperatorResult<wire::BlockedKeyList> {
        self.get(ApiCall::Blocked, &[], query).await
    }

    async fn audit(&self, query: &wire::AuditQuery) -> OperatorResult<wire::OperationList> {
        self.get(ApiCall::Audit, &[], query).await
    }

    async fn doctor(&self, query: &DoctorQuery) -> OperatorResult<wire::DoctorReport> {
        if query.handlers.is_some() || query.redelivery.is_some() {
            let what = "--handlers and --redelivery require --store; the sidecar knows them with --api";
            return Err(OperatorError::Invalid(what.into()));
        }
        self.get(ApiCall::Doctor, &[], &()).await
    }

    async fn act(
        &self,
        verb: wire::EntryVerb,
        key: &Key,
        action: &wire::EntryAction,
    ) -> OperatorResult<wire::ActionResponse> {
        let call = match verb {
            wire::EntryVerb::Retry => ApiCall::Retry,
            wire::EntryVerb::Discard => ApiCall::Discard,
            wire::EntryVerb::Replay => ApiCall::Replay,
            wire::EntryVerb::Unblock => ApiCall::Unblock,
        };
        self.post(call, &[("key", &key.to_string())], action).await
    }

    async fn erase(&self, key: &Key, erasure: &wire::ErasureAction) -> OperatorResult<wire::ActionResponse> {
        self.post(ApiCall::Erase, &[("key", &key.to_string())], erasure).await
    }

    async fn hold(&self, pause: bool, hold: &wire::PauseAction) -> OperatorResult<wire::ActionResponse> {
        self.post(if pause { ApiCall::Pause } else { ApiCall::Resume }, &[], hold).await
    }

    async fn preview(&self, plan: &wire::BulkPlan) -> OperatorResult<wire::BulkPreview> {
        self.post(ApiCall::BulkPreview, &[], plan).await
    }

    async fn bulk(
        &self,
        action: &wire::BulkAction,
        on_progress: ProgressFn<'_>,
    ) -> OperatorResult<wire::BulkReport> {
        let begun = self.post(ApiCall::Bulk, &[], action).await?;
        self.watch(begun, on_progress).await
    }

    async fn purge_preview(&self, plan: &wire::PurgePlan) -> OperatorResult<wire::PurgePreview> {
        self.post(ApiCall::PurgePreview, &[], plan).await
    }

    async fn purge(&self, purge: &wire::PurgeAction) -> OperatorResult<wire::ActionResponse> {
        self.post(ApiCall::Purge, &[], purge).await
    }

    async fn backfill(
        &self,
        plan: &BackfillPlan,
        on_progress: ProgressFn<'_>,
    ) -> OperatorResult<wire::BulkReport> {
        if !plan.types.is_empty() || !plan.legacy.is_empty() || plan.limit.is_some() {
            let what =
                "--type, --legacy and --limit require --store; the sidecar knows the handlers with --api";
            return Err(OperatorError::Invalid(what.into()));
        }
        let begun = self.post(ApiCall::Backfill, &[], &plan.action).await?;
        self.watch(begun, on_progress).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_has_exactly_the_given_values() {
        let mut url = Url::parse("http://127.0.0.1:1/x").unwrap();
        add_query(&mut url, &()).unwrap();
        assert_eq!(url.as_str(), "http://127.0.0.1:1/x");
        let asked = serde_json::json!({ "status": ["poisoned", "pending"], "error": "50% &", "limit": 3, "after": null });
        add_query(&mut url, &asked).unwrap();
        let pairs: Vec<_> = url.query_pairs().into_owned().collect();
        let wanted = [("error", "50% &"), ("limit", "3"), ("status", "poisoned"), ("status", "pending")];
        assert_eq!(pairs.len(), wanted.len());
        for (name, value) in wanted {
            assert!(pairs.contains(&(name.to_owned(), value.to_owned())), "{name}={value} in {pairs:?}");
        }
    }

    #[test]
    fn a_response_without_a_reason_still_has_advice() {
        let error = refused(StatusCode::NOT_FOUND, b"<html>", true);
        assert!(error.is_not_found() && error.to_string().contains("oncebox serve"), "{error}");
    }

    #[test]
    fn a_refused_read_does_not_say_what_was_kept() {
        let body = br#"{"type":"t","title":"t","status":404,"detail":"none","kept":"kept","advice":"look"}"#;
        for (changes, text) in [(true, "none: kept; look"), (false, "none; look")] {
            assert_eq!(refused(StatusCode::NOT_FOUND, body, changes).to_string(), text);
        }
    }
}
