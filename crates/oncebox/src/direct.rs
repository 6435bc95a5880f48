//! An inbox without a store, for a service that does not have one yet.

use async_trait::async_trait;

use crate::error::{Error, ErrorKind, Result};
use crate::state::Settlement;
use crate::store::{
    Accepted, Backlog, BacklogParams, Capabilities, ClaimParams, Claimed, NewMessage, Orphan, OrphanParams,
    RegisterParams, RenewParams, Renewed, RescueParams, Settled, Store, SweepParams, Swept,
};

/// No store at all: handlers run while the delivery is held, and nothing is remembered.
///
/// It is the first step of a service that gets an inbox later: sources, handlers and limits are there, repeats are not
/// recognised, and retrying is the transport's business. A delivery whose handlers did not all succeed comes again, and
/// all of them run again. Nothing but [`Inbox::receive`](crate::Inbox::receive) and sources works: there is nowhere to
/// accept into. The second step is another store in the place of this one.
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
        Capabilities { direct: true, ..Capabilities::new("direct") }
    }

    async fn accept(&self, _: &[NewMessage]) -> Result<Vec<Accepted>> {
        Err(Error::new(
            ErrorKind::Unsupported,
            "a direct inbox cannot accept: it has nowhere to keep a message",
        ))
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
