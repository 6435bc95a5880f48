//! Work of operators on an inbox: the requests and responses, and the client that routes of the API and commands share. Tests:
//! `tests/serve/api/clients.rs` and `tests/operate/`.

mod long;
mod pause;
pub(crate) mod show;
mod store_client;
pub(crate) mod wire;

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use oncebox::{Error, ErrorKind, HandlerKey, Key};

pub(crate) use long::LongOperation;
pub(crate) use show::Privacy;
pub(crate) use store_client::{RequestWords, StoreClient};

/// Callback for the progress of a long operation.
pub(crate) type ProgressFn<'a> = &'a mut (dyn FnMut(&wire::BulkReport) + Send);

/// Arguments of a doctor query.
#[derive(Clone, Debug, Default)]
pub(crate) struct DoctorQuery {
    /// Handlers that run anywhere.
    pub(crate) handlers: Option<Vec<HandlerKey>>,
    /// Longest time after its first delivery until a message may be redelivered.
    pub(crate) redelivery: Option<Duration>,
}

/// Arguments of a backfill.
#[derive(Clone, Debug)]
pub(crate) struct BackfillPlan {
    pub(crate) action: wire::BackfillAction,
    /// Types that the handler takes. Default: as the configuration or the serving process says.
    pub(crate) types: Vec<Box<str>>,
    /// Former keys.
    pub(crate) legacy: Vec<HandlerKey>,
    /// Maximum entries.
    pub(crate) limit: Option<usize>,
}

impl From<wire::BackfillAction> for BackfillPlan {
    /// Leaves types and former keys to the configuration.
    fn from(action: wire::BackfillAction) -> Self {
        Self { action, types: Vec::new(), legacy: Vec::new(), limit: None }
    }
}

/// Failure of an operator request.
#[derive(Debug)]
pub(crate) enum OperatorError {
    /// A value of the request is not valid.
    Invalid(String),
    /// The count is no longer the one that the request expected.
    Changed { count: u64, expected: u64 },
    /// The store failed or refused.
    Store(Error),
    /// The API is not reachable.
    Unreachable(String),
    /// The API refused the request with this HTTP status.
    Refused(u16, String),
    /// The API did not respond, or not as this build expects.
    Lost(String),
}

impl OperatorError {
    /// Returns true if the object does not exist.
    pub(crate) fn is_not_found(&self) -> bool {
        match self {
            Self::Store(error) => error.kind() == ErrorKind::NotFound,
            Self::Refused(status, _) => *status == 404,
            _ => false,
        }
    }
}

impl fmt::Display for OperatorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Changed { count, expected } => {
                write!(f, "the count is {count} now, and the request expected {expected}")
            }
            Self::Store(error) => error.fmt(f),
            Self::Invalid(what) | Self::Unreachable(what) | Self::Refused(_, what) | Self::Lost(what) => {
                f.write_str(what)
            }
        }
    }
}

impl From<Error> for OperatorError {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

/// Result of an operator request.
pub(crate) type OperatorResult<T> = Result<T, OperatorError>;

/// An inbox as operators see it, whether on its store or through the API. Both return the same wire types.
#[async_trait]
pub(crate) trait OperatorClient: Send + Sync {
    async fn counts(&self, tenant: Option<&str>) -> OperatorResult<wire::InboxTotals>;
    async fn entries(&self, query: &wire::EntriesQuery) -> OperatorResult<wire::EntryList>;
    async fn message(&self, key: &Key) -> OperatorResult<wire::MessageDetails>;
    async fn payloads(&self, key: &Key) -> OperatorResult<wire::MessagePayloads>;
    async fn explain(&self, key: &Key) -> OperatorResult<wire::MessageExplanation>;
    async fn quarantined(&self, query: &wire::QuarantineQuery) -> OperatorResult<wire::QuarantineList>;
    async fn blocked(&self, query: &wire::BlockedQuery) -> OperatorResult<wire::BlockedKeyList>;
    async fn audit(&self, query: &wire::AuditQuery) -> OperatorResult<wire::OperationList>;
    async fn doctor(&self, query: &DoctorQuery) -> OperatorResult<wire::DoctorReport>;
    async fn act(
        &self,
        verb: wire::EntryVerb,
        key: &Key,
        action: &wire::EntryAction,
    ) -> OperatorResult<wire::ActionResponse>;
    async fn erase(&self, key: &Key, erasure: &wire::ErasureAction) -> OperatorResult<wire::ActionResponse>;
    async fn hold(&self, pause: bool, hold: &wire::PauseAction) -> OperatorResult<wire::ActionResponse>;
    async fn preview(&self, plan: &wire::BulkPlan) -> OperatorResult<wire::BulkPreview>;
    /// Runs the operation until it ends or stops.
    async fn bulk(
        &self,
        action: &wire::BulkAction,
        on_progress: ProgressFn<'_>,
    ) -> OperatorResult<wire::BulkReport>;
    async fn purge_preview(&self, plan: &wire::PurgePlan) -> OperatorResult<wire::PurgePreview>;
    async fn purge(&self, purge: &wire::PurgeAction) -> OperatorResult<wire::ActionResponse>;
    /// Runs the operation until it ends or stops.
    async fn backfill(
        &self,
        plan: &BackfillPlan,
        on_progress: ProgressFn<'_>,
    ) -> OperatorResult<wire::BulkReport>;
}
