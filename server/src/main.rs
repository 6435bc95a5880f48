//! `oncebox`: a durable inbox on the command line, and a sidecar for every language. Tests: `tests/`.

mod api;
mod cli;
mod config;
mod delivery;
mod demo;
mod operator;
mod sidecar;

use std::process::ExitCode;

fn main() -> ExitCode {
    // One cryptography library under all TLS. Fails only if one was installed before, which nothing does.
    let _ = rustls::crypto::ring::default_provider().install_default();
    cli::run()
}
