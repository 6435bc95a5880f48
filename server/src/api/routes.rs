//! The table of API routes. The router, the role check and the `OpenAPI` document use it. Tests: below.

use std::any::TypeId;

use schemars::{JsonSchema, Schema, SchemaGenerator};

use super::access::ApiRole;
use crate::operator::wire;

/// Path prefix of all routes in the table.
pub(crate) const PREFIX: &str = "/api/v1";

/// HTTP method of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Method {
    Get,
    Post,
}

/// A route of the API.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ApiRoute {
    pub(crate) call: ApiCall,
    pub(crate) method: Method,
    /// Path below [`PREFIX`], with `{name}` for a parameter.
    pub(crate) path: &'static str,
    /// Required role; `None` if the route needs no token.
    pub(crate) role: Option<ApiRole>,
    /// HTTP status on success.
    pub(crate) status: u16,
    pub(crate) summary: &'static str,
}

impl ApiRoute {
    /// Returns true if the route reads a body.
    pub(crate) fn takes_body(&self) -> bool {
        self.method == Method::Post && self.call != ApiCall::Stop
    }

    /// Returns true if the route changes nothing.
    pub(crate) fn is_read(&self) -> bool {
        self.method == Method::Get || self.path.ends_with("/preview")
    }

    /// Returns the whole path with its parameters.
    pub(crate) fn url_path(&self, parts: &[(&str, &str)]) -> String {
        let filled = parts.iter().fold(self.path.to_owned(), |path, (name, value)| {
            path.replace(&format!("{{{name}}}"), &segment(value))
        });
        format!("{PREFIX}{filled}")
    }
}

/// Encodes a text as one path segment.
fn segment(text: &str) -> String {
    use std::fmt::Write as _;
    text.bytes().fold(String::with_capacity(text.len()), |mut path, byte| {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            path.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(path, "%{byte:02X}");
        }
        path
    })
}

/// Schemas of a call.
pub(crate) struct Shape {
    pub(crate) query: Option<Schema>,
    pub(crate) body: Option<Schema>,
    pub(crate) response: Schema,
}

fn schema<T: JsonSchema + 'static>(generator: &mut SchemaGenerator) -> Option<Schema> {
    (TypeId::of::<T>() != TypeId::of::<()>()).then(|| generator.subschema_for::<T>())
}

macro_rules! role {
    (Public) => {
        None
    };
    ($role:ident) => {
        Some(ApiRole::$role)
    };
}

macro_rules! routes {
    ($($call:ident $method:ident $path:literal $role:ident ($query:ty, $body:ty) $status:literal $response:ty, $summary:literal;)+) => {
        /// A call of the API.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[expect(clippy::doc_markdown, reason = "the summaries are those of the description, as plain text")]
        pub(crate) enum ApiCall { $(#[doc = $summary] $call,)+ }

        /// The table.
        pub(crate) const ROUTES: &[ApiRoute] = &[$(
            ApiRoute {
                call: ApiCall::$call,
                method: Method::$method,
                path: $path,
                role: role!($role),
                status: $status,
                summary: $summary,
            },
        )+];

        impl ApiCall {
            /// Returns the `operationId` in the `OpenAPI` document.
            pub(crate) const fn name(self) -> &'static str {
                match self { $(Self::$call => stringify!($call),)+ }
            }

            /// Returns the schemas of the query, body and response.
            pub(crate) fn shape(self, generator: &mut SchemaGenerator) -> Shape {
                match self {
                    $(Self::$call => Shape {
                        query: schema::<$query>(generator),
                        body: schema::<$body>(generator),
                        response: generator.subschema_for::<$response>(),
                    },)+
                }
            }
        }
    };
}

routes! {
    OpenApi Get "/openapi.json" Public ((), ()) 200 serde_json::Value,
        "OpenAPI document of this API";
    Me Get "/me" Viewer ((), ()) 200 wire::CallerInfo,
        "Token name and roles of the caller";
    Inboxes Get "/inboxes" Viewer ((), ()) 200 wire::InboxList,
        "Inboxes that this process serves";
    Counts Get "/inboxes/{inbox}/counts" Viewer (wire::TenantQuery, ()) 200 wire::InboxTotals,
        "Counts of messages, entries, paused handlers and blocked ordering keys";
    Entries Get "/inboxes/{inbox}/entries" Viewer (wire::EntriesQuery, ()) 200 wire::EntryList,
        "Page of entries that match a filter, oldest message first";
    Message Get "/inboxes/{inbox}/messages/{key}" Viewer ((), ()) 200 wire::MessageDetails,
        "One message with its entries and failed attempts, without its payload";
    Payload Get "/inboxes/{inbox}/messages/{key}/payload" PayloadReader ((), ()) 200 wire::MessagePayloads,
        "Payload and headers of a message, redacted";
    Explain Get "/inboxes/{inbox}/messages/{key}/explain" Viewer ((), ()) 200 wire::MessageExplanation,
        "History of a message, and the reason for the state of each entry";
    Quarantine Get "/inboxes/{inbox}/quarantine" Viewer (wire::QuarantineQuery, ()) 200 wire::QuarantineList,
        "Quarantined messages: conflicts and stale messages";
    Blocked Get "/inboxes/{inbox}/blocked" Viewer (wire::BlockedQuery, ()) 200 wire::BlockedKeyList,
        "Ordering keys that a poisoned entry blocks";
    Handlers Get "/inboxes/{inbox}/handlers" Viewer ((), ()) 200 wire::HandlerList,
        "Handlers, with their types, breaker state and pauses";
    Retention Get "/inboxes/{inbox}/retention" Viewer ((), ()) 200 wire::RetentionReport,
        "Delays of duplicates, and whether the retention window covers them";
    Doctor Get "/inboxes/{inbox}/doctor" Viewer ((), ()) 200 wire::DoctorReport,
        "Problems of the inbox or its store";
    Audit Get "/inboxes/{inbox}/audit" Viewer (wire::AuditQuery, ()) 200 wire::OperationList,
        "Page of the audit log, newest first";
    Operation Get "/inboxes/{inbox}/operations/{operation}" Viewer ((), ()) 200 wire::OperationProgress,
        "Record and progress of one operation";
    Stop Post "/inboxes/{inbox}/operations/{operation}/stop" Operator ((), ()) 200 wire::OperationProgress,
        "Stop a bulk operation or backfill of this process; repeat the operation id to continue";
    Retry Post "/inboxes/{inbox}/messages/{key}/retry" Operator ((), wire::EntryAction) 200 wire::ActionResponse,
        "Retry a poisoned entry";
    Discard Post "/inboxes/{inbox}/messages/{key}/discard" Operator ((), wire::EntryAction) 200 wire::ActionResponse,
        "Discard a poisoned or pending entry";
    Replay Post "/inboxes/{inbox}/messages/{key}/replay" Operator ((), wire::EntryAction) 200 wire::ActionResponse,
        "Run a finished entry again, as a new generation";
    Unblock Post "/inboxes/{inbox}/messages/{key}/unblock" Operator ((), wire::EntryAction) 200 wire::ActionResponse,
        "Let the entries behind a poisoned one with its ordering key continue without it";
    Erase Post "/inboxes/{inbox}/messages/{key}/erase" Admin ((), wire::ErasureAction) 200 wire::ActionResponse,
        "Erase the content of a message for good; its key stays, so that redeliveries are still duplicates";
    BulkPreview Post "/inboxes/{inbox}/bulk/preview" Viewer ((), wire::BulkPlan) 200 wire::BulkPreview,
        "Dry run of a bulk operation";
    Bulk Post "/inboxes/{inbox}/bulk" Operator ((), wire::BulkAction) 202 wire::BulkReport,
        "Start or continue an action on all entries that match a filter";
    Pause Post "/inboxes/{inbox}/pause" Operator ((), wire::PauseAction) 200 wire::ActionResponse,
        "Stop claims for a handler, or for one of its ordering keys, on every worker";
    Resume Post "/inboxes/{inbox}/resume" Operator ((), wire::PauseAction) 200 wire::ActionResponse,
        "Resume claims for a handler or ordering key";
    PurgePreview Post "/inboxes/{inbox}/purge/preview" Viewer ((), wire::PurgePlan) 200 wire::PurgePreview,
        "Dry run of a purge";
    Purge Post "/inboxes/{inbox}/purge" Admin ((), wire::PurgeAction) 200 wire::ActionResponse,
        "Delete quarantined messages";
    Backfill Post "/inboxes/{inbox}/backfill" Admin ((), wire::BackfillAction) 202 wire::BulkReport,
        "Add entries for messages that were stored before a handler existed";
}

impl ApiCall {
    /// Returns its row in the table.
    pub(crate) fn route(self) -> &'static ApiRoute {
        // The macro generates both from one list, in the same order.
        &ROUTES[self as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_finds_its_route() {
        for (at, route) in ROUTES.iter().enumerate() {
            assert_eq!(route.call as usize, at);
            assert_eq!(route.call.route().path, route.path);
            let twin = |other: &&ApiRoute| (other.path, other.method) == (route.path, route.method);
            assert_eq!(ROUTES.iter().filter(twin).count(), 1, "{}", route.path);
            let mut generator = SchemaGenerator::default();
            assert_eq!(route.call.shape(&mut generator).body.is_some(), route.takes_body(), "{}", route.path);
        }
    }

    // FAULTS S8: every route that changes data needs more than the role viewer.
    #[test]
    fn a_viewer_changes_nothing() {
        for route in ROUTES.iter().filter(|route| route.method == Method::Post) {
            assert_eq!(route.role == Some(ApiRole::Viewer), route.is_read(), "{}", route.path);
        }
        let open: Vec<_> =
            ROUTES.iter().filter(|route| route.role.is_none()).map(|route| route.path).collect();
        assert_eq!(open, ["/openapi.json"]);
    }

    #[test]
    fn parameters_of_a_path_are_escaped() {
        let path = ApiCall::Message.route().url_path(&[("inbox", "a/b ü"), ("key", "../x")]);
        assert_eq!(path, "/api/v1/inboxes/a%2Fb%20%C3%BC/messages/..%2Fx");
    }
}
