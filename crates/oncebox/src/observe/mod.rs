//! What the inbox tells the outside about itself: metrics and spans, written once around the seams.

pub mod names;
mod observed;

pub use observed::Observed;
