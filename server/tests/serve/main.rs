//! `oncebox serve` as a process: requests, deliveries and log.
#![allow(clippy::unwrap_used, reason = "the helpers of tests panic like tests do")]

mod api;
mod config;
mod descriptors;
mod flood;
mod languages;
mod listeners;
mod login;
mod network;
mod postgres;
mod rabbitmq;
mod reload;
mod rename;
mod responses;
mod sealed;
mod sources;
mod start;
mod stop;
mod support;
mod tenants;
mod tls;
mod traces;
mod untrusted;
mod zero_config;
