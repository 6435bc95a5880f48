//! The one error type of the library: a kind to match on, a sentence for people, and the cause.

use std::error::Error as StdError;
use std::fmt;

/// Anything that can be a cause.
pub type BoxError = Box<dyn StdError + Send + Sync + 'static>;

/// A result with the library's error.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, in the terms a caller can act on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The message has no usable dedupe key: its id is missing, empty or only white space.
    MissingKey,
    /// The message was stored or handled before, and the inbox is told to say so with an error.
    Duplicate,
    /// The message names no tenant though the inbox requires one, or names one though the inbox has none.
    Tenant,
    /// The message cannot be taken as it is: a field is too long, or holds what it may not.
    InvalidMessage,
    /// The payload or a result is larger than the inbox takes.
    TooLarge,
    /// No handler is registered for the message's type and the inbox is told to refuse such messages.
    Unrouted,
    /// A setting is out of range, or two settings contradict one another.
    InvalidConfig,
    /// A handler registration is wrong: an empty, over-long or repeated handler key.
    InvalidHandler,
    /// The store cannot give what was asked of it.
    Unsupported,
    /// The store did not answer, is locked by another process, or has been stopped. Trying again may help.
    Unavailable,
    /// The store or its disk is full. Trying again helps once there is room.
    Full,
    /// The store refuses writes.
    ReadOnly,
    /// The store refused the login, the TLS connection or a privilege. Trying again helps once an operator restored access.
    Denied,
    /// A commit was sent and its answer never came: it may have happened, or not.
    CommitUnknown,
    /// The store's schema is newer than this build understands.
    SchemaTooNew,
    /// The store has no schema, or an older one that has to be migrated first.
    SchemaOutdated,
    /// The store holds what it should never hold.
    Corrupt,
    /// The thing to act on does not exist.
    NotFound,
    /// The thing to act on is not in a state that allows the action.
    Refused,
    /// The identity of an operation was used before, for another action, target or reason.
    OperationReused,
    /// The inbox has worked on this store with other tenants settings, under which the same message has another key.
    TenantsChanged,
    /// A handler failed; the cause is the handler's own error.
    Handler,
    /// A handler ended the transaction that it was given, which only the library may.
    TransactionEnded,
    /// The claim under which the work was done belongs to somebody else by now.
    LeaseLost,
}

impl ErrorKind {
    /// Every kind.
    pub const ALL: [Self; 24] = [
        Self::MissingKey,
        Self::Duplicate,
        Self::Tenant,
        Self::InvalidMessage,
        Self::TooLarge,
        Self::Unrouted,
        Self::InvalidConfig,
        Self::InvalidHandler,
        Self::Unsupported,
        Self::Unavailable,
        Self::Full,
        Self::ReadOnly,
        Self::Denied,
        Self::CommitUnknown,
        Self::SchemaTooNew,
        Self::SchemaOutdated,
        Self::Corrupt,
        Self::NotFound,
        Self::Refused,
        Self::OperationReused,
        Self::TenantsChanged,
        Self::Handler,
        Self::TransactionEnded,
        Self::LeaseLost,
    ];

    /// The word for it in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::MissingKey => "missing_key",
            Self::Duplicate => "duplicate",
            Self::Tenant => "tenant",
            Self::InvalidMessage => "invalid_message",
            Self::TooLarge => "too_large",
            Self::Unrouted => "unrouted",
            Self::InvalidConfig => "invalid_config",
            Self::InvalidHandler => "invalid_handler",
            Self::Unsupported => "unsupported",
            Self::Unavailable => "unavailable",
            Self::Full => "full",
            Self::ReadOnly => "read_only",
            Self::Denied => "denied",
            Self::CommitUnknown => "commit_unknown",
            Self::SchemaTooNew => "schema_too_new",
            Self::SchemaOutdated => "schema_outdated",
            Self::Corrupt => "corrupt",
            Self::NotFound => "not_found",
            Self::Refused => "refused",
            Self::OperationReused => "operation_reused",
            Self::TenantsChanged => "tenants_changed",
            Self::Handler => "handler",
            Self::TransactionEnded => "transaction_ended",
            Self::LeaseLost => "lease_lost",
        }
    }

    /// Whether the same call may succeed later with nothing changed by the caller.
    pub const fn is_retryable(self) -> bool {
        matches!(
            self,
            Self::Unavailable
                | Self::Full
                | Self::Denied
                | Self::CommitUnknown
                | Self::LeaseLost
                | Self::Handler
        )
    }

    /// Whether the store failed, rather than the call.
    pub const fn is_outage(self) -> bool {
        matches!(
            self,
            Self::Unavailable
                | Self::Full
                | Self::ReadOnly
                | Self::Denied
                | Self::CommitUnknown
                | Self::SchemaTooNew
                | Self::SchemaOutdated
                | Self::Corrupt
        )
    }

    /// Whether an error of many messages that were stored together may be the doing of one of them.
    pub const fn is_per_message(self) -> bool {
        matches!(
            self,
            Self::MissingKey
                | Self::InvalidMessage
                | Self::TooLarge
                | Self::Unrouted
                | Self::Tenant
                | Self::Corrupt
        )
    }

    /// What is known to be stored after this error.
    pub const fn kept(self) -> &'static str {
        match self {
            Self::Duplicate => "it is kept as it came first",
            Self::CommitUnknown => "it is not known whether the change was stored",
            Self::Handler | Self::LeaseLost => "the handler's transaction was rolled back",
            Self::TransactionEnded => "what it wrote before may be committed, but the message is not done",
            _ => "nothing was stored by this call",
        }
    }

    /// What the reader of the error can do about it.
    pub const fn advice(self) -> &'static str {
        match self {
            Self::MissingKey => {
                "give the message an id, choose another key strategy, or set `missing_key` to `Undeduplicated`"
            }
            Self::Duplicate => "acknowledge the delivery: its work was done before, or will be",
            Self::Tenant => "name the tenant at the source, or change `tenants`",
            Self::InvalidMessage => "correct the message at its producer",
            Self::TooLarge => "raise the limit, or pass on a reference to the data",
            Self::Unrouted => "register a handler for the type, or set `unrouted` to `Keep`",
            Self::InvalidConfig | Self::InvalidHandler => "correct the set-up and start again",
            Self::Unsupported => "use a store with this capability, or ask for less",
            Self::Unavailable => "try again; a delivery that waits for this must not be acknowledged",
            Self::Full => {
                "make room, then try again; a delivery that waits for this must not be acknowledged"
            }
            Self::ReadOnly => "check the file's permissions, or connect to the primary",
            Self::Denied => "restore the login, the certificate or the privilege, then try again",
            Self::CommitUnknown => {
                "do the same call again: what was stored is recognised; do not acknowledge before it answers"
            }
            Self::SchemaTooNew => "use the newer build that made this schema",
            Self::SchemaOutdated => "run the migrations first",
            Self::Corrupt => "stop, keep a copy, and check the store",
            Self::NotFound => "check the key or number",
            Self::Refused => "look at the current state first",
            Self::OperationReused => {
                "make a new operation id for each thing that is to be done, and for each reason"
            }
            Self::TenantsChanged => {
                "set `tenants` as before, name the tenant of the earlier messages in `adopted_tenant`, or set \
                 `on_tenants_change` to Accept if their redeliveries may run again"
            }
            Self::Handler => "mend the handler; the message is tried again",
            Self::TransactionEnded => {
                "take the COMMIT or ROLLBACK out of the handler, then see what it has written"
            }
            Self::LeaseLost => "nothing: the new owner of the claim does the work",
        }
    }
}

/// An error of the inbox. Its text says what happened, what was kept, and what to do.
pub struct Error {
    kind: ErrorKind,
    what: Box<str>,
    source: Option<BoxError>,
}

impl Error {
    /// A new error; `what` says what happened, without a full stop.
    pub fn new(kind: ErrorKind, what: impl Into<String>) -> Self {
        Self { kind, what: what.into().into_boxed_str(), source: None }
    }

    /// The same error with its cause.
    pub fn caused_by(mut self, source: impl Into<BoxError>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// The cause, without the error.
    pub fn into_cause(self) -> Option<BoxError> {
        self.source
    }

    /// What to match on.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// What happened, without what was kept and what to do.
    pub fn what(&self) -> &str {
        &self.what
    }

    /// Whether the same call may succeed later with nothing changed by the caller.
    pub fn is_retryable(&self) -> bool {
        self.kind.is_retryable()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; {}", self.what, self.kind.kept(), self.kind.advice())
    }
}

/// For people too, because `main` prints an error this way: the whole sentence, then the kind and the causes.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self} ({:?})", self.kind)?;
        let mut cause = self.source();
        while let Some(error) = cause {
            // An error of ours would say again what was kept and what to do.
            match error.downcast_ref::<Self>() {
                Some(inner) => write!(f, "\n  caused by: {}", inner.what)?,
                None => write!(f, "\n  caused by: {error}")?,
            }
            cause = error.source();
        }
        Ok(())
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

/// Errors that tell the same story to several callers, as when they shared one transaction.
impl Error {
    /// A copy for another caller; the cause becomes its text, because causes cannot be copied.
    pub fn to_shared(&self) -> Self {
        let copy = Self::new(self.kind, self.what.to_string());
        match &self.source {
            Some(source) => copy.caused_by(source.to_string()),
            None => copy,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_tells_the_whole_story_once() {
        let inner = Error::new(ErrorKind::Full, "the disk is full").caused_by("no space left");
        let error = Error::new(ErrorKind::CommitUnknown, "a commit was not confirmed").caused_by(inner);
        let text = format!("{error:?}");
        assert!(text.starts_with(&error.to_string()), "{text}");
        assert!(
            text.ends_with("(CommitUnknown)\n  caused by: the disk is full\n  caused by: no space left"),
            "{text}"
        );
    }
}
