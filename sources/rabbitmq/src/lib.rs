//! Messages from RabbitMQ. Tests: `tests/`, and in each module.
//!
//! [`RabbitMq`] is a [source](oncebox_core::source::Source) for an inbox. It consumes one queue, and acknowledges each
//! message after the inbox has stored it.
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
//! Its guarantees:
//!
//! - **A delivery is acknowledged after a known commit**, and settled once. A delivery belongs to its channel. If the
//!   channel is lost, its acknowledgement goes nowhere. The broker delivers the message again, and the inbox recognises
//!   it.
//! - **It reconnects.** If the broker goes away, closes the channel or cancels the consumer, the source reports it and
//!   connects again, with growing pauses. A broker that was away gets a second before the source consumes. The source
//!   ends only with the inbox.
//! - **During an outage of the store it consumes nothing**, and returns nothing. Quorum queues count returned messages,
//!   and drop or dead-letter them after too many.
//! - **Rejection loses nothing.** Rejected messages go to a dead-letter exchange, or to an exchange of your choice
//!   before they are acknowledged. If neither is configured, `build` refuses the source.
//!
//! The guide `docs/guides/rabbitmq.md` has the settings, for the source and the broker.

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

/// Programs of the guide, compiled as tests.
#[cfg(doctest)]
mod guides {
    #[doc = include_str!("../../../docs/guides/rabbitmq.md")]
    mod rabbitmq {}
}
