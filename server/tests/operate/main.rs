//! The commands of operators: the binary on real stores, including expected failures.

mod actions;
mod bulk;
mod doctor;
mod erase;
mod fixture;
mod migrate;
mod output;
mod postgres;
mod queries;
