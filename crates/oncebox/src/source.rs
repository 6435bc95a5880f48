//! The interface to brokers: a source returns deliveries, and each is settled once.
//!
//! Its traits are in `oncebox-core`; the batcher and the source in memory are in `oncebox-tokio`.

#[doc(inline)]
pub use oncebox_core::source::*;
#[doc(inline)]
pub use oncebox_tokio::{BatchPermit, Batcher, ChannelSender, ChannelSource, channel};
