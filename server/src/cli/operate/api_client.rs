//! An inbox, through the API of a process that serves it.

use std::time::Duration;

use anyhow::{Context as _, anyhow};
use async_trait::async_trait;
use oncebox::time::{Clock as _, SystemClock};
use oncebox::{InboxName, Key};
use reqwest::{Client, StatusCode, Url};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::CommandError;
use super::client::{BackfillPlan, DoctorQuery, OperatorClient, ProgressFn};
use super::target::usage;
use crate::api::routes::{ApiCall, Method};
use crate::api::wire;
use crate::cli::{Absent, Exit, out};
use crate::config::secret;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_mins(1);
/// How often a long operation is asked how far it has come.
const LOOK: Duration = Duration::from_secs(1);
/// Where the token is, unless it is said.
const TOKEN: &str = "ONCEBOX_TOKEN";

pub(super) struct ApiClient {
    client: Client,
    base: Url,
    token: Option<String>,
    inbox: InboxName,
}

impl ApiClient {
    pub(super) fn new(url: &str, token: Option<&str>, inbox: InboxName) -> Result<Self, CommandError> {
        let no_url = || usage("--api is no address; write it like http://127.0.0.1:8472");
        let mut base = Url::parse(url).map_err(|_| no_url())?;
        if !matches!(base.scheme(), "http" | "https") || base.host().is_none() {
            return Err(no_url());
        }
        if !base.username().is_empty() || base.password().is_some() {
            return Err(usage("--api holds a user or a password; a token is named with --token env:NAME"));
        }
        base.set_path("");
        base.set_query(None);
        let token = match token {
            Some(named) => Some(secret(named).map_err(usage)?),
            None => std::env::var(TOKEN).ok().filter(|token| !token.is_empty()),
        };
        let here = base.host_str().is_some_and(|host| matches!(host, "127.0.0.1" | "localhost" | "[::1]"));
        if token.is_some() && base.scheme() == "http" && !here {
            out::eprint_note("oncebox: the token goes over the network as it is; use https");
        }
        // A redirect would take the token elsewhere.
        let client = Client::builder().timeout(PATIENCE).redirect(reqwest::redirect::Policy::none()).build();
        let client = client.context("cannot make an HTTP client").map_err(|error| Exit::Start.with(error))?;
        Ok(Self { client, base, token, inbox })
    }

    async fn get<Q: Serialize, A: DeserializeOwned>(
        &self,
        call: ApiCall,
        parts: &[(&str, &str)],
        query: &Q,
    ) -> Result<A, CommandError> {
        self.ask(call, parts, query, None).await
    }

    async fn post<B: Serialize, A: DeserializeOwned>(
        &self,
        call: ApiCall,
        parts: &[(&str, &str)],
        body: &B,
    ) -> Result<A, CommandError> {
        let body = serde_json::to_vec(body).context("cannot write the request")?;
        self.ask(call, parts, &(), Some(body)).await
    }

    async fn ask<Q: Serialize, A: DeserializeOwned>(
        &self,
        call: ApiCall,
        parts: &[(&str, &str)],
        query: &Q,
        body: Option<Vec<u8>>,
    ) -> Result<A, CommandError> {
        let route = call.route();
        let parts: Vec<_> = parts.iter().copied().chain([("inbox", self.inbox.as_str())]).collect();
        let mut url = self.base.clone();
        url.set_path(&route.url_path(&parts));
        fill(&mut url, query)?;
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
        let answer = request.send().await.map_err(|error| self.no_answer(&error, changes))?;
        let status = answer.status();
        let bytes = answer.bytes().await.map_err(|error| self.no_answer(&error, changes))?;
        if !status.is_success() {
            return Err(refused(status, &bytes));
        }
        serde_json::from_slice(&bytes).map_err(|error| {
            let what = format!(
                "{} answers what this build does not understand; use the same build: {error}",
                self.base
            );
            Exit::Failure.with(anyhow!(what))
        })
    }

    fn no_answer(&self, error: &reqwest::Error, changes: bool) -> CommandError {
        let base = &self.base;
        // Causes, without the URL again.
        let mut why = String::new();
        let mut cause = std::error::Error::source(error);
        while let Some(inner) = cause {
            why = format!(": {inner}");
            cause = inner.source();
        }
        if error.is_connect() {
            let what = format!("cannot reach {base}{why}; is `oncebox serve` running there?");
            return Exit::Start.with(anyhow!(what));
        }
        let known = if changes {
            "it is not known whether it was done: ask again with the same --operation"
        } else {
            "ask again"
        };
        Exit::Failure.with(anyhow!("{base} did not answer{why}; {known}"))
    }

    /// Asks how far an operation has come until it has ended.
    async fn watch(
        &self,
        mut now: wire::OperationReport,
        told: ProgressFn<'_>,
    ) -> Result<wire::OperationReport, CommandError> {
        let clock = SystemClock::default();
        let id = now.operation.0.to_string();
        loop {
            told(&now);
            if matches!(now.state.as_str(), "finished" | "capped" | "stopped") {
                return Ok(now);
            }
            // It was interrupted, or stopped there by somebody.
            if !now.active {
                let what = format!(
                    "operation {id} is not carried on by that process; ask for it again with --operation {id}"
                );
                return Err(Exit::Failure.with(anyhow!(what)));
            }
            clock.sleep(LOOK).await;
            let looked: wire::OperationProgress =
                self.get(ApiCall::Operation, &[("operation", &id)], &()).await?;
            let unknown =
                || Exit::Failure.with(anyhow!("nothing is told of how far operation {id} has come"));
            now = looked.report.ok_or_else(unknown)?;
        }
    }
}

/// Puts values into a query: lists as one for each, nothing for what is not there.
fn fill<Q: Serialize>(url: &mut Url, query: &Q) -> Result<(), CommandError> {
    let values = serde_json::to_value(query).context("cannot write the request")?;
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

/// What a server says that does not do it.
fn refused(status: StatusCode, body: &[u8]) -> CommandError {
    let exit = match status.as_u16() {
        401 | 403 | 404 | 409 => Exit::Refused,
        400..500 => Exit::Usage,
        _ => Exit::Failure,
    };
    let what = match serde_json::from_slice::<wire::ProblemDocument>(body) {
        Ok(problem) => format!("{}: {}; {}", problem.detail, problem.kept, problem.advice),
        Err(_) => {
            format!("the answer is {status}, without a reason; is this the address of an `oncebox serve`?")
        }
    };
    if status == StatusCode::NOT_FOUND { exit.with(Absent(what)) } else { exit.with(anyhow!(what)) }
}

#[async_trait]
impl OperatorClient for ApiClient {
    async fn counts(&self, tenant: Option<&str>) -> Result<wire::InboxCounts, CommandError> {
        self.get(ApiCall::Counts, &[], &wire::TenantQuery { tenant: tenant.map(Into::into) }).await
    }

    async fn entries(&self, query: &wire::EntriesQuery) -> Result<wire::EntryList, CommandError> {
        self.get(ApiCall::Entries, &[], query).await
    }

    async fn message(&self, key: &Key) -> Result<wire::MessageDetails, CommandError> {
        self.get(ApiCall::Message, &[("key", &key.to_string())], &()).await
    }

    async fn payloads(&self, key: &Key) -> Result<wire::MessagePayloads, CommandError> {
        self.get(ApiCall::Payload, &[("key", &key.to_string())], &()).await
    }

    async fn explain(&self, key: &Key) -> Result<wire::MessageExplanation, CommandError> {
        self.get(ApiCall::Explain, &[("key", &key.to_string())], &()).await
    }

    async fn quarantined(&self, query: &wire::QuarantineQuery) -> Result<wire::QuarantineList, CommandError> {
        self.get(ApiCall::Quarantine, &[], query).await
    }

    async fn blocked(&self, query: &wire::BlockedQuery) -> Result<wire::BlockedKeyList, CommandError> {
        self.get(ApiCall::Blocked, &[], query).await
    }

    async fn audit(&self, query: &wire::AuditQuery) -> Result<wire::OperationList, CommandError> {
        self.get(ApiCall::Audit, &[], query).await
    }

    async fn doctor(&self, asked: &DoctorQuery) -> Result<Vec<wire::DoctorFinding>, CommandError> {
        if asked.handlers.is_some() || asked.redelivery.is_some() {
            return Err(usage(
                "--handlers and --redelivery are for a store: a process that serves an inbox knows them",
            ));
        }
        Ok(self.get::<_, wire::DoctorReport>(ApiCall::Doctor, &[], &()).await?.findings)
    }

    async fn act(
        &self,
        verb: wire::EntryVerb,
        key: &Key,
        action: &wire::EntryAction,
    ) -> Result<wire::ActionResponse, CommandError> {
        let call = match verb {
            wire::EntryVerb::Retry => ApiCall::Retry,
            wire::EntryVerb::Discard => ApiCall::Discard,
            wire::EntryVerb::Replay => ApiCall::Replay,
            wire::EntryVerb::Unblock => ApiCall::Unblock,
        };
        self.post(call, &[("key", &key.to_string())], action).await
    }

    async fn erase(
        &self,
        key: &Key,
        erasure: &wire::ErasureAction,
    ) -> Result<wire::ActionResponse, CommandError> {
        self.post(ApiCall::Erase, &[("key", &key.to_string())], erasure).await
    }

    async fn hold(
        &self,
        pause: bool,
        hold: &wire::PauseAction,
    ) -> Result<wire::ActionResponse, CommandError> {
        self.post(if pause { ApiCall::Pause } else { ApiCall::Resume }, &[], hold).await
    }

    async fn preview(&self, plan: &wire::BulkPlan) -> Result<wire::BulkPreview, CommandError> {
        self.post(ApiCall::BulkPreview, &[], plan).await
    }

    async fn bulk(
        &self,
        action: &wire::BulkAction,
        told: ProgressFn<'_>,
    ) -> Result<wire::OperationReport, CommandError> {
        let begun = self.post(ApiCall::Bulk, &[], action).await?;
        self.watch(begun, told).await
    }

    async fn purge_preview(&self, plan: &wire::PurgePlan) -> Result<wire::PurgePreview, CommandError> {
        self.post(ApiCall::PurgePreview, &[], plan).await
    }

    async fn purge(&self, purge: &wire::PurgeAction) -> Result<wire::ActionResponse, CommandError> {
        self.post(ApiCall::Purge, &[], purge).await
    }

    async fn backfill(
        &self,
        late: &BackfillPlan,
        told: ProgressFn<'_>,
    ) -> Result<wire::OperationReport, CommandError> {
        if !late.types.is_empty() || !late.legacy.is_empty() || late.limit.is_some() {
            return Err(usage(
                "--type, --legacy and --limit are for a store: a process that serves an inbox knows its handlers",
            ));
        }
        let begun = self.post(ApiCall::Backfill, &[], &late.action).await?;
        self.watch(begun, told).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_holds_what_is_asked_for_and_nothing_else() {
        let mut url = Url::parse("http://127.0.0.1:1/x").unwrap();
        fill(&mut url, &()).unwrap();
        assert_eq!(url.as_str(), "http://127.0.0.1:1/x");
        let asked = serde_json::json!({ "status": ["poisoned", "pending"], "error": "50% &", "limit": 3, "after": null });
        fill(&mut url, &asked).unwrap();
        let pairs: Vec<_> = url.query_pairs().into_owned().collect();
        let wanted = [("error", "50% &"), ("limit", "3"), ("status", "poisoned"), ("status", "pending")];
        assert_eq!(pairs.len(), wanted.len());
        for (name, value) in wanted {
            assert!(pairs.contains(&(name.to_owned(), value.to_owned())), "{name}={value} in {pairs:?}");
        }
    }

    #[test]
    fn an_answer_without_a_reason_still_says_what_to_do() {
        let CommandError { exit, error } = refused(StatusCode::NOT_FOUND, b"<html>");
        assert_eq!(exit, Exit::Refused);
        assert!(error.to_string().contains("oncebox serve"), "{error}");
    }
}
