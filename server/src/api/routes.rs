//! Every route, in one table: its path, who may use it, what goes in and what comes out. The router, the check of rights
//! and the description for clients are all made of it.

use std::any::TypeId;

use schemars::{JsonSchema, Schema, SchemaGenerator};

use super::access::ApiRole;
use super::wire;

/// What all routes of the table are below.
pub(crate) const PREFIX: &str = "/api/v1";

/// How a route is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Method {
    Get,
    Post,
}

/// A route.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ApiRoute {
    pub(crate) call: ApiCall,
    pub(crate) method: Method,
    /// Below [`PREFIX`]; `{name}` stands for a part.
    pub(crate) path: &'static str,
    /// The role that is needed; nobody has to say who they are if there is none.
    pub(crate) role: Option<ApiRole>,
    /// The status if it succeeds.
    pub(crate) status: u16,
    pub(crate) summary: &'static str,
}

impl ApiRoute {
    /// Whether a body is read.
    pub(crate) fn takes_body(&self) -> bool {
        self.method == Method::Post && self.call != ApiCall::Stop
    }

    /// Whether it changes nothing.
    pub(crate) fn looks(&self) -> bool {
        self.method == Method::Get || self.path.ends_with("/preview")
    }

    /// The whole path, with the parts filled in.
    pub(crate) fn url_path(&self, parts: &[(&str, &str)]) -> String {
        let filled = parts.iter().fold(self.path.to_owned(), |path, (name, value)| {
            path.replace(&format!("{{{name}}}"), &segment(value))
        });
        format!("{PREFIX}{filled}")
    }
}

/// A text as one part of a path.
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

/// What goes into a call and comes out of it.
pub(crate) struct Shape {
    pub(crate) query: Option<Schema>,
    pub(crate) body: Option<Schema>,
    pub(crate) answer: Schema,
}

fn schema<T: JsonSchema + 'static>(generator: &mut SchemaGenerator) -> Option<Schema> {
    (TypeId::of::<T>() != TypeId::of::<()>()).then(|| generator.subschema_for::<T>())
}

macro_rules! role {
    (Nobody) => {
        None
    };
    ($role:ident) => {
        Some(ApiRole::$role)
    };
}

macro_rules! routes {
    ($($call:ident $method:ident $path:literal $role:ident ($query:ty, $body:ty) $status:literal $answer:ty, $summary:literal;)+) => {
        /// What can be asked for.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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
            /// The name of the operation in the description.
            pub(crate) const fn name(self) -> &'static str {
                match self { $(Self::$call => stringify!($call),)+ }
            }

            /// What goes in and comes out, as schemas.
            pub(crate) fn shape(self, generator: &mut SchemaGenerator) -> Shape {
                match self {
                    $(Self::$call => Shape {
                        query: schema::<$query>(generator),
                        body: schema::<$body>(generator),
                        answer: generator.subschema_for::<$answer>(),
                    },)+
                }
            }
        }
    };
}

routes! {
    OpenApi Get "/openapi.json" Nobody ((), ()) 200 serde_json::Value,
        "This description";
    Me Get "/me" Viewer ((), ()) 200 wire::CallerInfo,
        "ApiCaller asks, and what they may do";
    Inboxes Get "/inboxes" Viewer ((), ()) 200 wire::InboxList,
        "Every inbox that this process serves";
    Counts Get "/inboxes/{inbox}/counts" Viewer (wire::TenantQuery, ()) 200 wire::InboxCounts,
        "How much of everything there is";
    Entries Get "/inboxes/{inbox}/entries" Viewer (wire::EntriesQuery, ()) 200 wire::EntryList,
        "Entries that a filter takes, the oldest message first, a page at a time";
    Message Get "/inboxes/{inbox}/messages/{key}" Viewer ((), ()) 200 wire::MessageDetails,
        "One message with all its entries and failed attempts, without its payload";
    Payload Get "/inboxes/{inbox}/messages/{key}/payload" PayloadReader ((), ()) 200 wire::MessagePayloads,
        "The payload and headers of a message, as the rules of redaction show them";
    Explain Get "/inboxes/{inbox}/messages/{key}/explain" Viewer ((), ()) 200 wire::MessageExplanation,
        "What happened to a message, and why its entries are where they are";
    Quarantine Get "/inboxes/{inbox}/quarantine" Viewer (wire::QuarantineQuery, ()) 200 wire::QuarantineList,
        "Messages that were quarantined: conflicts and stale ones";
    Blocked Get "/inboxes/{inbox}/blocked" Viewer (wire::BlockedQuery, ()) 200 wire::BlockedKeyList,
        "Ordering keys that a poisoned entry holds back";
    Handlers Get "/inboxes/{inbox}/handlers" Viewer ((), ()) 200 wire::HandlerList,
        "The handlers, and which of them are paused";
    Retention Get "/inboxes/{inbox}/retention" Viewer ((), ()) 200 wire::RetentionReport,
        "How late duplicates came, and whether keys are remembered for long enough";
    Doctor Get "/inboxes/{inbox}/doctor" Viewer ((), ()) 200 wire::DoctorReport,
        "What endangers the inbox or its store";
    Audit Get "/inboxes/{inbox}/audit" Viewer (wire::AuditQuery, ()) 200 wire::OperationList,
        "What operators did, the latest first";
    Operation Get "/inboxes/{inbox}/operations/{operation}" Viewer ((), ()) 200 wire::OperationProgress,
        "The record of one operation, and how far it has come";
    Stop Post "/inboxes/{inbox}/operations/{operation}/stop" Operator ((), ()) 200 wire::OperationProgress,
        "Stops an operation on many that this process carries on; asking for it again goes on";
    Retry Post "/inboxes/{inbox}/messages/{key}/retry" Operator ((), wire::EntryAction) 200 wire::ActionResponse,
        "Tries a poisoned entry again";
    Discard Post "/inboxes/{inbox}/messages/{key}/discard" Operator ((), wire::EntryAction) 200 wire::ActionResponse,
        "Gives up an entry that is poisoned or still waits";
    Replay Post "/inboxes/{inbox}/messages/{key}/replay" Operator ((), wire::EntryAction) 200 wire::ActionResponse,
        "Runs a finished entry again, as a new generation";
    Unblock Post "/inboxes/{inbox}/messages/{key}/unblock" Operator ((), wire::EntryAction) 200 wire::ActionResponse,
        "Lets those behind a poisoned entry with its ordering key go on without it";
    Erase Post "/inboxes/{inbox}/messages/{key}/erase" Admin ((), wire::ErasureAction) 200 wire::ActionResponse,
        "Erases the content of a message for good; its key stays, so that the same message is still a duplicate";
    BulkPreview Post "/inboxes/{inbox}/bulk/preview" Viewer ((), wire::BulkPlan) 200 wire::BulkPreview,
        "What an action on many entries would be done to; changes nothing";
    Bulk Post "/inboxes/{inbox}/bulk" Operator ((), wire::BulkAction) 202 wire::OperationReport,
        "Begins an action on every entry that a filter takes, or carries it on";
    Pause Post "/inboxes/{inbox}/pause" Operator ((), wire::PauseAction) 200 wire::ActionResponse,
        "Stops claims for a handler, or for one of its ordering keys, on every worker";
    Resume Post "/inboxes/{inbox}/resume" Operator ((), wire::PauseAction) 200 wire::ActionResponse,
        "Allows claims again";
    PurgePreview Post "/inboxes/{inbox}/purge/preview" Viewer ((), wire::PurgePlan) 200 wire::PurgePreview,
        "How many messages a purge would remove; changes nothing";
    Purge Post "/inboxes/{inbox}/purge" Admin ((), wire::PurgeAction) 200 wire::ActionResponse,
        "Removes messages that were quarantined";
    Backfill Post "/inboxes/{inbox}/backfill" Admin ((), wire::BackfillAction) 202 wire::OperationReport,
        "Gives a handler the messages that were stored before it was there";
}

impl ApiCall {
    /// Its line in the table.
    pub(crate) fn route(self) -> &'static ApiRoute {
        // Every call has a line: both are made of the same list, in the same order.
        &ROUTES[self as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_finds_its_line() {
        for (at, route) in ROUTES.iter().enumerate() {
            assert_eq!(route.call as usize, at);
            assert_eq!(route.call.route().path, route.path);
            let twin = |other: &&ApiRoute| (other.path, other.method) == (route.path, route.method);
            assert_eq!(ROUTES.iter().filter(twin).count(), 1, "{}", route.path);
            let mut generator = SchemaGenerator::default();
            assert_eq!(route.call.shape(&mut generator).body.is_some(), route.takes_body(), "{}", route.path);
        }
    }

    // FAULTS S8: whatever changes something needs more than looking.
    #[test]
    fn nothing_is_changed_by_a_viewer() {
        for route in ROUTES.iter().filter(|route| route.method == Method::Post) {
            assert_eq!(route.role == Some(ApiRole::Viewer), route.looks(), "{}", route.path);
        }
        let open: Vec<_> =
            ROUTES.iter().filter(|route| route.role.is_none()).map(|route| route.path).collect();
        assert_eq!(open, ["/openapi.json"]);
    }

    #[test]
    fn parts_of_a_path_cannot_become_others() {
        let path = ApiCall::Message.route().url_path(&[("inbox", "a/b ü"), ("key", "../x")]);
        assert_eq!(path, "/api/v1/inboxes/a%2Fb%20%C3%BC/messages/..%2Fx");
    }
}
