//! The commands of an operator, as one runs them: the binary, on real stores, expected failures included.

mod act;
mod bulk;
mod doctor;
mod erase;
mod look;
mod migrate;
mod output;
mod postgres;
mod world;
