//! The transactions of the store inside, unchanged. Results and accepted messages are sealed in them. Tests:
//! `tests/conformance.rs`.

use std::future::Future;

use bytes::Bytes;
use oncebox_core::store::{
    AcceptIn, Accepted, Claim, Mark, MarkIn, NewMessage, SettleIn, Settled, ShareIn, Transactional,
};
use oncebox_core::{Error, ErrorKind, Fingerprint, HandlerKey, InboxName, Key, Result};

use crate::Sealed;
use crate::seal::{SealedField, open, seal};

/// First bytes of a sealed result, which distinguish it from an older unsealed one. An unsealed result is unlikely to
/// begin with them; if it does, it cannot be opened.
const MARK: &[u8] = b"oncebox-sealed\0";

fn place<'a>(inbox: &'a InboxName, key: &'a Key, handler: &'a HandlerKey) -> SealedField<'a> {
    SealedField { inbox, key, field: "result", handler: handler.as_str(), message: None }
}

impl<S: Transactional> Transactional for Sealed<S> {
    type Tx = S::Tx;

    fn begin(&self) -> impl Future<Output = Result<S::Tx>> + Send {
        self.store.begin()
    }

    fn commit(&self, tx: S::Tx) -> impl Future<Output = Result<()>> + Send {
        self.store.commit(tx)
    }

    fn finish(&self, tx: S::Tx, claim: &Claim) -> impl Future<Output = Result<Settled>> + Send {
        self.store.finish(tx, claim)
    }

    fn rollback(&self, tx: S::Tx) -> impl Future<Output = ()> + Send {
        self.store.rollback(tx)
    }
}

/// For transactions that can move between threads: the future must hold the sealed result until it is written.
impl<Tx: ?Sized + Send, S: MarkIn<Tx>> MarkIn<Tx> for Sealed<S> {
    fn mark(
        &self,
        tx: &mut Tx,
        inbox: &InboxName,
        key: &Key,
        handler: &HandlerKey,
        fingerprint: Option<Fingerprint>,
    ) -> impl Future<Output = Result<Mark>> + Send {
        let keys = self.keys.keys();
        let fingerprint = fingerprint.map(|plain| Self::fingerprint(&keys, inbox, key, plain));
        self.store.mark(tx, inbox, key, handler, fingerprint)
    }

    async fn quarantine(&self, tx: &mut Tx, message: &NewMessage) -> Result<()> {
        let sealed = Self::seal_new(&self.keys.keys(), message)?;
        self.store.quarantine(tx, &sealed).await
    }

    async fn record(
        &self,
        tx: &mut Tx,
        inbox: &InboxName,
        key: &Key,
        handler: &HandlerKey,
        result: &[u8],
    ) -> Result<()> {
        let sealed = seal(&self.keys.keys(), place(inbox, key, handler), result)?;
        self.store.record(tx, inbox, key, handler, &[MARK, &sealed].concat()).await
    }

    async fn recall(
        &self,
        tx: &mut Tx,
        inbox: &InboxName,
        key: &Key,
        handler: &HandlerKey,
    ) -> Result<Option<Bytes>> {
        let Some(stored) = self.store.recall(tx, inbox, key, handler).await? else { return Ok(None) };
        let Some(sealed) = stored.strip_prefix(MARK) else {
            if self.plaintext {
                return Ok(Some(stored));
            }
            return Err(Error::new(ErrorKind::Corrupt, "a stored result is not sealed"));
        };
        open(&self.keys.keys(), self.oldest, place(inbox, key, handler), sealed)
            .map(|plain| Some(plain.into()))
            .map_err(|why| Error::new(ErrorKind::Corrupt, format!("a stored result cannot be read: {why}")))
    }

    fn is_marked(
        &self,
        tx: &mut Tx,
        inbox: &InboxName,
        key: &Key,
        handler: &HandlerKey,
    ) -> impl Future<Output = Result<bool>> + Send {
        self.store.is_marked(tx, inbox, key, handler)
    }
}

/// For transactions that can move between threads: the future must hold the sealed messages until they are written.
impl<Tx: ?Sized + Send, S: AcceptIn<Tx>> AcceptIn<Tx> for Sealed<S> {
    async fn accept_in(&self, tx: &mut Tx, batch: &[NewMessage]) -> Result<Vec<Accepted>> {
        let keys = self.keys.keys();
        let sealed: Vec<NewMessage> =
            batch.iter().map(|new| Self::seal_new(&keys, new)).collect::<Result<_>>()?;
        self.store.accept_in(tx, &sealed).await
    }
}

impl<Tx: ?Sized, S: SettleIn<Tx>> SettleIn<Tx> for Sealed<S> {
    fn complete(&self, tx: &mut Tx, claim: &Claim) -> impl Future<Output = Result<Settled>> + Send {
        self.store.complete(tx, claim)
    }
}

impl<Tx: ?Sized, S: ShareIn<Tx>> ShareIn<Tx> for Sealed<S> {
    fn hold(&self, tx: &mut Tx, claims: &[Claim]) -> impl Future<Output = Result<Vec<Settled>>> + Send {
        self.store.hold(tx, claims)
    }

    fn savepoint(&self, tx: &mut Tx) -> impl Future<Output = Result<()>> + Send {
        self.store.savepoint(tx)
    }

    fn rollback_to_savepoint(&self, tx: &mut Tx) -> impl Future<Output = Result<()>> + Send {
        self.store.rollback_to_savepoint(tx)
    }

    fn complete_all(
        &self,
        tx: &mut Tx,
        claims: &[Claim],
    ) -> impl Future<Output = Result<Vec<Settled>>> + Send {
        self.store.complete_all(tx, claims)
    }
}
