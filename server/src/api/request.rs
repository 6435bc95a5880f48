//! One API request: its inbox, key, query and body. Tests: `tests/serve/api/`.

use std::collections::HashMap;
use std::sync::Arc;

use axum::body::Bytes;
use oncebox::Key;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::access::ApiCaller;
use super::openapi;
use super::problem::{ApiProblem, ProblemKind};
use super::routes::ApiCall;
use super::{Current, OperatorApi, ServedInbox};
use crate::operator::StoreClient;
use crate::operator::wire::OperationUuid;

/// An API request.
pub(super) struct ApiRequest {
    pub(super) api: Arc<OperatorApi>,
    /// Inboxes that the process served when the request came.
    pub(super) current: Arc<Current>,
    pub(super) call: ApiCall,
    pub(super) caller: ApiCaller,
    pub(super) parts: HashMap<String, String>,
    pub(super) query: String,
    pub(super) body: Bytes,
}

impl ApiRequest {
    fn part(&self, name: &str) -> &str {
        self.parts.get(name).map_or("", String::as_str)
    }

    /// Returns the inbox in the path.
    pub(super) fn inbox(&self) -> Result<&ServedInbox, ApiProblem> {
        let name = self.part("inbox");
        let found = self.current.inboxes.iter().find(|inbox| inbox.name().as_str() == name);
        found.ok_or_else(|| ApiProblem::new(ProblemKind::NotFound, "this process serves no such inbox"))
    }

    /// Returns a client of the inbox in the path, for the caller.
    pub(super) fn client(&self) -> Result<StoreClient, ApiProblem> {
        Ok(self.inbox()?.operator.on_behalf_of(self.caller.name.as_deref()))
    }

    /// Returns the key in the path.
    pub(super) fn key(&self) -> Result<Key, ApiProblem> {
        let unknown = || {
            ApiProblem::new(ProblemKind::NotFound, "the key is not valid: a key has 64 hexadecimal digits")
        };
        Key::parse(self.part("key")).ok_or_else(unknown)
    }

    /// Returns the operation id in the path.
    pub(super) fn operation(&self) -> Result<OperationUuid, ApiProblem> {
        let unknown =
            || ApiProblem::new(ProblemKind::NotFound, "the operation id is not valid: it is a UUID");
        OperationUuid::read(self.part("operation")).ok_or_else(unknown)
    }

    /// Parses the query. Only lists may be repeated.
    pub(super) fn query<T: DeserializeOwned>(&self) -> Result<T, ApiProblem> {
        let kinds = openapi::query_kinds(self.call);
        let mut values = Map::new();
        for (name, text) in url::form_urlencoded::parse(self.query.as_bytes()) {
            let bad =
                |why: &str| ApiProblem::new(ProblemKind::Malformed, format!("the parameter `{name}` {why}"));
            let kind = kinds.get(&*name).ok_or_else(|| bad("is unknown"))?;
            let text = Value::String(text.into_owned());
            match kind.as_str() {
                Some("array") => match values.entry(&*name).or_insert_with(|| Value::Array(Vec::new())) {
                    Value::Array(all) => all.push(text),
                    _ => return Err(bad("is not a list")),
                },
                Some("integer") => {
                    let number: Option<i64> = text.as_str().and_then(|text| text.parse().ok());
                    let number = number.ok_or_else(|| bad("is not an integer"))?;
                    if values.insert(name.to_string(), number.into()).is_some() {
                        return Err(bad("is repeated"));
                    }
                }
                _ => {
                    if values.insert(name.to_string(), text).is_some() {
                        return Err(bad("is repeated"));
                    }
                }
            }
        }
        serde_json::from_value(Value::Object(values)).map_err(|error| invalid(&error))
    }

    /// Parses the body.
    pub(super) fn body<T: DeserializeOwned>(&self) -> Result<T, ApiProblem> {
        // First as JSON, then as the expected type, so that each error has its own kind.
        let mut value: Value = serde_json::from_slice(&self.body).map_err(|error| {
            ApiProblem::new(ProblemKind::Malformed, format!("the body is not JSON: {error}"))
        })?;
        to_integers(&mut value);
        serde_json::from_value(value).map_err(|error| invalid(&error))
    }
}

/// Converts numbers like 7.0, which JSON treats as integers.
fn to_integers(value: &mut Value) {
    match value {
        Value::Number(number) => {
            let exact = number.as_f64().filter(|f| number.is_f64() && f.fract() == 0.0 && f.abs() < 9e15);
            #[expect(clippy::cast_possible_truncation, reason = "it is an integer below 2^53")]
            if let Some(exact) = exact {
                *value = (exact as i64).into();
            }
        }
        Value::Array(values) => values.iter_mut().for_each(to_integers),
        Value::Object(fields) => fields.values_mut().for_each(to_integers),
        _ => {}
    }
}

fn invalid(error: &serde_json::Error) -> ApiProblem {
    // The error may quote the request, which the client knows anyway.
    let text: String = error.to_string().chars().take(300).collect();
    ApiProblem::new(ProblemKind::Invalid, text)
}
