//! An inbox without a store, for a service that does not have one yet. Tests: `tests/direct.rs`.

use async_trait::async_trait;

use crate::error::{Error, ErrorKind, Result};
use crate::state::Settlement;
use crate::store::{
    Accepted, Backlog, BacklogParams, Capabilities, ClaimParams, Claimed, NewMessage, Orphan, OrphanParams,
    RegisterParams, RenewParams, Renewed, RescueParams, Settled, Store, SweepParams, Swept,
};

/// The absence of a store: handlers run while the broker holds the delivery, and nothing is remembered.
///
/// It is the first step of a service that gets a store later. Sources, handlers and limits work; repeats are not
/// recognised, and the transport retries. If a handler fails, the delivery comes again and all its handlers run again.
/// Only [`Inbox::receive`](crate::Inbox::receive) and sources work, because nothing can be accepted. The second step
/// replaces this store.
///
/// ```
/// use oncebox::{BoxError, Context, Direct, Inbox, Message, Receipt, handler};
///
/// async fn ship(order: u64, _cx: &mut Context<Direct>) -> Result<(), BoxError> {
///     println!("shipping {order}");
///     Ok(())
/// }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), BoxError> {
/// let inbox = Inbox::direct("orders").on("order.placed", handler("ship-order", ship)).build()?;
/// assert_eq!(inbox.receive(Message::new("1", "order.placed", "7")).await?, Receipt::Done);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Direct;

#[async_trait]
impl Store for Direct {
    fn capabilities(&self) -> Capabilities {
        let mut capabilities = Capabilities::new("direct");
        capabilities.direct = true;
        capabilities
    }

    async fn accept(&self, _: &[NewMessage]) -> Result<Vec<Accepted>> {
        Err(Error::new(ErrorKind::Unsupported, "a direct inbox cannot accept a message: it has no store"))
    }

    async fn claim(&self, _: &ClaimParams) -> Result<Vec<Claimed>> {
        Ok(Vec::new())
    }

    async fn settle(&self, batch: &[Settlement]) -> Result<Vec<Settled>> {
        Ok(vec![Settled::LeaseLost; batch.len()])
    }

    async fn renew(&self, params: &RenewParams) -> Result<Vec<Renewed>> {
        Ok(vec![Renewed::LeaseLost; params.claims.len()])
    }

    async fn rescue(&self, _: &RescueParams) -> Result<Vec<Claimed>> {
        Ok(Vec::new())
    }

    async fn register(&self, _: &RegisterParams) -> Result<()> {
        Ok(())
    }

    async fn sweep(&self, _: &SweepParams) -> Result<Swept> {
        Ok(Swept::NOTHING)
    }

    async fn orphans(&self, _: &OrphanParams) -> Result<Vec<Orphan>> {
        Ok(Vec::new())
    }

    async fn backlog(&self, _: &BacklogParams) -> Result<Vec<Backlog>> {
        Ok(Vec::new())
    }
}
