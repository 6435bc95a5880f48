//! A request, taken apart: which inbox, which message, which values.

use std::collections::HashMap;
use std::sync::Arc;

use axum::body::Bytes;
use oncebox::{HandlerKey, Key};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::access::ApiCaller;
use super::openapi;
use super::problem::{ApiProblem, ProblemKind};
use super::routes::ApiCall;
use super::wire::{BoundedText, OperationUuid};
use super::{Current, OperatorApi, ServedInbox};

/// What is asked for.
pub(super) struct ApiRequest {
    pub(super) api: Arc<OperatorApi>,
    /// What is served while this is answered.
    pub(super) current: Arc<Current>,
    pub(super) call: ApiCall,
    pub(super) who: ApiCaller,
    pub(super) parts: HashMap<String, String>,
    pub(super) query: String,
    pub(super) body: Bytes,
}

impl ApiRequest {
    fn part(&self, name: &str) -> &str {
        self.parts.get(name).map_or("", String::as_str)
    }

    /// The inbox that the path names.
    pub(super) fn inbox(&self) -> Result<&ServedInbox, ApiProblem> {
        let name = self.part("inbox");
        let found = self.current.inboxes.iter().find(|inbox| inbox.name().as_str() == name);
        found.ok_or_else(|| ApiProblem::new(ProblemKind::NotFound, "there is no such inbox here"))
    }

    /// The key that the path names.
    pub(super) fn key(&self) -> Result<Key, ApiProblem> {
        let unknown =
            || ApiProblem::new(ProblemKind::NotFound, "this is no key: a key has 64 hexadecimal digits");
        Key::parse(self.part("key")).ok_or_else(unknown)
    }

    /// The operation that the path names.
    pub(super) fn operation(&self) -> Result<OperationUuid, ApiProblem> {
        let unknown = || ApiProblem::new(ProblemKind::NotFound, "this is no operation: its id is a UUID");
        OperationUuid::read(self.part("operation")).ok_or_else(unknown)
    }

    /// The values of the query. Each may be given once, but for lists.
    pub(super) fn query<T: DeserializeOwned>(&self) -> Result<T, ApiProblem> {
        let kinds = openapi::query_kinds(self.call);
        let mut values = Map::new();
        for (name, text) in url::form_urlencoded::parse(self.query.as_bytes()) {
            let bad =
                |why: &str| ApiProblem::new(ProblemKind::Malformed, format!("the value `{name}` {why}"));
            let kind = kinds.get(&*name).ok_or_else(|| bad("is not known here"))?;
            let text = Value::String(text.into_owned());
            match kind.as_str() {
                Some("array") => match values.entry(&*name).or_insert_with(|| Value::Array(Vec::new())) {
                    Value::Array(all) => all.push(text),
                    _ => return Err(bad("cannot be read")),
                },
                Some("integer") => {
                    let number: Option<i64> = text.as_str().and_then(|text| text.parse().ok());
                    let number = number.ok_or_else(|| bad("is no number"))?;
                    if values.insert(name.to_string(), number.into()).is_some() {
                        return Err(bad("is given twice"));
                    }
                }
                _ => {
                    if values.insert(name.to_string(), text).is_some() {
                        return Err(bad("is given twice"));
                    }
                }
            }
        }
        serde_json::from_value(Value::Object(values)).map_err(|error| invalid(&error))
    }

    /// The body.
    pub(super) fn body<T: DeserializeOwned>(&self) -> Result<T, ApiProblem> {
        // Whether it is JSON at all, then whether it is what was asked for.
        let mut value: Value = serde_json::from_slice(&self.body).map_err(|error| {
            ApiProblem::new(ProblemKind::Malformed, format!("the body is not JSON: {error}"))
        })?;
        whole(&mut value);
        serde_json::from_value(value).map_err(|error| invalid(&error))
    }
}

/// To JSON 7.0 is a whole number.
fn whole(value: &mut Value) {
    match value {
        Value::Number(number) => {
            let exact = number.as_f64().filter(|f| number.is_f64() && f.fract() == 0.0 && f.abs() < 9e15);
            #[expect(clippy::cast_possible_truncation, reason = "it is whole, and small enough")]
            if let Some(exact) = exact {
                *value = (exact as i64).into();
            }
        }
        Value::Array(values) => values.iter_mut().for_each(whole),
        Value::Object(fields) => fields.values_mut().for_each(whole),
        _ => {}
    }
}

fn invalid(error: &serde_json::Error) -> ApiProblem {
    // It may repeat what was sent; the sender knows that.
    let text: String = error.to_string().chars().take(300).collect();
    ApiProblem::new(ProblemKind::Invalid, text)
}

/// A number within its bounds.
pub(super) fn bounded(
    name: &str,
    value: Option<u64>,
    default: usize,
    bounds: std::ops::RangeInclusive<u64>,
) -> Result<usize, ApiProblem> {
    let Some(value) = value else { return Ok(default) };
    let (least, max) = (bounds.start(), bounds.end());
    let wrong = || ApiProblem::new(ProblemKind::Invalid, format!("`{name}` is between {least} and {max}"));
    if bounds.contains(&value) { usize::try_from(value).map_err(|_| wrong()) } else { Err(wrong()) }
}

/// How long a page may be.
pub(super) fn page(limit: Option<u64>) -> Result<usize, ApiProblem> {
    bounded("limit", limit, 100, 1..=1_000)
}

/// The handler that a text names.
pub(super) fn handler(text: &BoundedText) -> Result<HandlerKey, ApiProblem> {
    HandlerKey::new(&**text).map_err(|error| ApiProblem::new(ProblemKind::Invalid, error.what()))
}
