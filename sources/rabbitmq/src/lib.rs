//! Messages from RabbitMQ.
//!
//! [`RabbitMq`] is a [source](oncebox_core::source::Source) for an inbox: it brings the messages of one queue, and
//! acknowledges each only when the inbox says that it is safe.
//!
//! ```no_run
//! # async fn example(inbox: oncebox::Inbox<oncebox::Memory>) -> oncebox::Result<()> {
//! use oncebox_rabbitmq::{Queue, RabbitMq};
//!
//! let orders = RabbitMq::builder("amqp://guest:guest@localhost/%2f")
//!     .queue(Queue::quorum("orders").delivery_limit(20).dead_letter_queue("orders.dead"))
//!     .build()?;
//! let running = inbox.start();
//! running.receive(orders)?;
//! # running.shutdown().await;
//! # Ok(())
//! # }
//! ```
//!
//! What it promises, and how:
//!
//! - **A delivery is acknowledged after a commit that is known to have happened**, and settled once. A delivery belongs to
//!   the channel that brought it. If that is lost, its acknowledgement goes nowhere, the broker brings the message again,
//!   and the inbox knows it.
//! - **It stays up.** If the broker goes away, closes the channel or cancels the consumer, the source reports it and connects
//!   again, with growing pauses. It gives a broker that was away a second before it consumes. Nothing but the end of the inbox
//!   ends it.
//! - **While the store is away nothing is consumed**, and nothing is given back: quorum queues count that, and drop or
//!   dead-letter a message that came back too often.
//! - **Nothing is lost by being rejected.** What can never be taken goes to a dead-letter exchange, or to an exchange of your
//!   choice before it is acknowledged. Where neither is named, the source is refused.
//!
//! The guide `docs/guides/rabbitmq.md` has the settings, and what to set at the broker.

#![forbid(unsafe_code)]

mod address;
mod builder;
mod cloud_event;
mod error;
mod field;
mod held;
mod message;
pub mod names;
mod parcel;
mod publisher;
mod queue;
mod session;
mod settle;
mod source;
mod state;
mod trouble;

pub use builder::RabbitMqSourceBuilder;
pub use field::Field;
pub use queue::{Argument, Queue};
pub use source::RabbitMq;
pub use state::{ConnectionState, Monitor};

/// The programs of the guide, so that they compile.
#[cfg(doctest)]
mod guides {
    #[doc = include_str!("../../../docs/guides/rabbitmq.md")]
    mod rabbitmq {}
}
