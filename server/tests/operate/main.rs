//! The commands of an operator, as one runs them: the binary, on real stores, expected failures included.

mod actions;
mod bulk;
mod doctor;
mod erase;
mod fixture;
mod migrate;
mod output;
mod postgres;
mod queries;
