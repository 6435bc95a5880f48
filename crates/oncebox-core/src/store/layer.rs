//! Wrappers around a store: each implements the verbs that it changes, and forwards the rest. Tests: `tests/layer.rs` of
//! `oncebox`, and the conformance suite on every wrapper.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;

use super::{
    Accepted, Acted, Action, AuditFilter, AuditPage, BackfillParams, Backfilled, Backlog, BacklogParams,
    BlockedKey, BlockedParams, Capabilities, ClaimParams, Claimed, DuplicateCount, EntryFilter, EntryPage,
    Examine, ExamineParams, Failover, Finding, InboxCounts, Inspect, Mark, MarkIn, MessageHistory,
    MessageView, NewMessage, Operate, OperationId, Orphan, OrphanParams, QuarantineFilter, QuarantinePage,
    RegisterParams, RenewParams, Renewed, RescueParams, SettleIn, Settled, ShareIn, Store, SweepParams,
    Swept, Transactional, Wakeups,
};
use crate::error::Result;
use crate::key::{Fingerprint, Key};
use crate::name::{HandlerKey, InboxName};
use crate::state::{Claim, Settlement};

/// Wrapper around a store of one tier or more.
pub trait Layer: Send + Sync + 'static {
    /// The wrapped store.
    type Inner: ?Sized + Send + Sync;

    /// Returns the wrapped store.
    fn inner(&self) -> &Self::Inner;
}

/// Makes the layer of a tier: a trait whose methods forward to the wrapped store, and the tier for each wrapper with that layer.
macro_rules! layer {
    (
        $(#[$about:meta])*
        $layer:ident: $below:ident => $tier:ident {
            $(fn $plain:ident($($given:ident: $taken:ty),*) -> $returned:ty;)*
            $(async $verb:ident($($arg:ident: $type:ty),*) -> $answer:ty;)*
        }
    ) => {
        $(#[$about])*
        #[async_trait]
        pub trait $layer: $below<Inner: $tier> {
            $(
                #[doc = concat!("Forwards `", stringify!($plain), "` to the wrapped store.")]
                fn $plain(&self, $($given: $taken),*) -> $returned {
                    $tier::$plain(self.inner(), $($given),*)
                }
            )*
            $(
                #[doc = concat!("Forwards `", stringify!($verb), "` to the wrapped store.")]
                async fn $verb(&self, $($arg: $type),*) -> Result<$answer> {
                    $tier::$verb(self.inner(), $($arg),*).await
                }
            )*
        }

        #[async_trait]
        impl<L: $layer + ?Sized> $tier for L {
            $(
                fn $plain(&self, $($given: $taken),*) -> $returned {
                    $layer::$plain(self, $($given),*)
                }
            )*
            $(
                async fn $verb(&self, $($arg: $type),*) -> Result<$answer> {
                    $layer::$verb(self, $($arg),*).await
                }
            )*
        }
    };
}

layer! {
    /// Wrapper that is a [`Store`].
    StoreLayer: Layer => Store {
        fn capabilities() -> Capabilities;
        fn wakeups() -> Option<&dyn Wakeups>;
        fn failover() -> Option<Failover>;
        fn is_transient(error: &(dyn std::error::Error + 'static)) -> bool;
        async accept(batch: &[NewMessage]) -> Vec<Accepted>;
        async claim(params: &ClaimParams) -> Vec<Claimed>;
        async settle(batch: &[Settlement]) -> Vec<Settled>;
        async renew(params: &RenewParams) -> Vec<Renewed>;
        async rescue(params: &RescueParams) -> Vec<Claimed>;
        async register(params: &RegisterParams) -> ();
        async sweep(params: &SweepParams) -> Swept;
        async orphans(params: &OrphanParams) -> Vec<Orphan>;
        async count_duplicates(batch: &[DuplicateCount]) -> ();
        async backlog(params: &BacklogParams) -> Vec<Backlog>;
    }
}

layer! {
    /// Wrapper that is [`Inspect`].
    InspectLayer: StoreLayer => Inspect {
        async count(inbox: &InboxName, tenant: Option<&str>) -> InboxCounts;
        async list(filter: &EntryFilter) -> EntryPage;
        async show(inbox: &InboxName, key: &Key) -> Option<MessageView>;
        async history(inbox: &InboxName, key: &Key) -> Option<MessageHistory>;
        async quarantined(filter: &QuarantineFilter) -> QuarantinePage;
        async blocked(params: &BlockedParams) -> Vec<BlockedKey>;
        async audit(filter: &AuditFilter) -> AuditPage;
    }
}

layer! {
    /// Wrapper that is [`Operate`].
    OperateLayer: InspectLayer => Operate {
        async act(action: &Action) -> Acted;
        async backfill(params: &BackfillParams) -> Backfilled;
        async progress(id: OperationId, noted: u32, progress: &str) -> bool;
    }
}

layer! {
    /// Wrapper that is [`Examine`].
    ExamineLayer: InspectLayer => Examine {
        async examine(params: &ExamineParams) -> Vec<Finding>;
    }
}

impl<S: ?Sized + Send + Sync + 'static> Layer for Arc<S> {
    type Inner = S;

    fn inner(&self) -> &S {
        self
    }
}

impl<S: Store + ?Sized> StoreLayer for Arc<S> {}
impl<S: Inspect + ?Sized> InspectLayer for Arc<S> {}
impl<S: Operate + ?Sized> OperateLayer for Arc<S> {}
impl<S: Examine + ?Sized> ExamineLayer for Arc<S> {}

impl<S: Transactional> Transactional for Arc<S> {
    type Tx = S::Tx;

    fn begin(&self) -> impl Future<Output = Result<S::Tx>> + Send {
        (**self).begin()
    }

    fn commit(&self, tx: S::Tx) -> impl Future<Output = Result<()>> + Send {
        (**self).commit(tx)
    }

    fn finish(&self, tx: S::Tx, claim: &Claim) -> impl Future<Output = Result<Settled>> + Send {
        (**self).finish(tx, claim)
    }

    fn rollback(&self, tx: S::Tx) -> impl Future<Output = ()> + Send {
        (**self).rollback(tx)
    }
}

impl<Tx: ?Sized, S: SettleIn<Tx>> SettleIn<Tx> for Arc<S> {
    fn complete(&self, tx: &mut Tx, claim: &Claim) -> impl Future<Output = Result<Settled>> + Send {
        (**self).complete(tx, claim)
    }
}

impl<Tx: ?Sized, S: MarkIn<Tx>> MarkIn<Tx> for Arc<S> {
    fn mark(
        &self,
        tx: &mut Tx,
        inbox: &InboxName,
        key: &Key,
        handler: &HandlerKey,
        fingerprint: Option<Fingerprint>,
    ) -> impl Future<Output = Result<Mark>> + Send {
        (**self).mark(tx, inbox, key, handler, fingerprint)
    }

    fn is_marked(
        &self,
        tx: &mut Tx,
        inbox: &InboxName,
        key: &Key,
        handler: &HandlerKey,
    ) -> impl Future<Output = Result<bool>> + Send {
        (**self).is_marked(tx, inbox, key, handler)
    }

    fn quarantine(&self, tx: &mut Tx, message: &NewMessage) -> impl Future<Output = Result<()>> + Send {
        (**self).quarantine(tx, message)
    }

    fn record(
        &self,
        tx: &mut Tx,
        inbox: &InboxName,
        key: &Key,
        handler: &HandlerKey,
        result: &[u8],
    ) -> impl Future<Output = Result<()>> + Send {
        (**self).record(tx, inbox, key, handler, result)
    }

    fn recall(
        &self,
        tx: &mut Tx,
        inbox: &InboxName,
        key: &Key,
        handler: &HandlerKey,
    ) -> impl Future<Output = Result<Option<Bytes>>> + Send {
        (**self).recall(tx, inbox, key, handler)
    }
}

impl<Tx: ?Sized, S: ShareIn<Tx>> ShareIn<Tx> for Arc<S> {
    fn hold(&self, tx: &mut Tx, claims: &[Claim]) -> impl Future<Output = Result<Vec<Settled>>> + Send {
        (**self).hold(tx, claims)
    }

    fn savepoint(&self, tx: &mut Tx) -> impl Future<Output = Result<()>> + Send {
        (**self).savepoint(tx)
    }

    fn rollback_to_savepoint(&self, tx: &mut Tx) -> impl Future<Output = Result<()>> + Send {
        (**self).rollback_to_savepoint(tx)
    }

    fn complete_all(
        &self,
        tx: &mut Tx,
        claims: &[Claim],
    ) -> impl Future<Output = Result<Vec<Settled>>> + Send {
        (**self).complete_all(tx, claims)
    }
}
