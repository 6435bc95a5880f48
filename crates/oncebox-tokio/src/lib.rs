//! Parts of Oncebox that need Tokio and no inbox, for stores and sources: the system clock, a batcher, a source in memory, and
//! wake-ups. `oncebox` re-exports what its users need.

mod batcher;
mod channel;
mod clock;
mod wakeup;

pub use batcher::{BatchPermit, Batcher};
pub use channel::{ChannelSender, ChannelSource, channel};
pub use clock::SystemClock;
pub use wakeup::wakeup;
