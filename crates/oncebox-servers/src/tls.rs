//! Certificate of a server, and the authority that signs it. Tests: `tests/replica.rs` and `tests/rabbitmq.rs`.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result};

use crate::cluster::conf_line;
use crate::scratch::Scratch;
use crate::{INSTALL, process};

const KEY: [&str; 6] = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-x509"];

/// Files of a server.
const FILES: [&str; 3] = ["ca.crt", "server.crt", "server.key"];

pub(crate) fn ca_file(scratch: &Scratch) -> PathBuf {
    scratch.path().join(FILES[0])
}

/// Creates the files, and returns the settings that use them.
///
/// Two certificates, because strict clients refuse an authority's own certificate as that of a server.
pub(crate) fn make(scratch: &Scratch) -> Result<String> {
    let mut authority = scratch.command("openssl");
    authority.arg("req").args(KEY).args(["-days", "2", "-subj", "/CN=oncebox test authority"]);
    authority.args(["-addext", "keyUsage=critical,keyCertSign"]);
    authority.args(["-keyout", "ca.key", "-out", FILES[0]]);
    process::run(&mut authority).with_context(|| {
        format!("`openssl` is needed for a server with TLS; `{INSTALL}` installs it if it is missing")
    })?;
    let mut server = scratch.command("openssl");
    server.arg("req").args(KEY).args(["-days", "2", "-subj", "/CN=localhost"]);
    server.args(["-CA", FILES[0], "-CAkey", "ca.key"]);
    server.args(["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]);
    server.args(["-addext", "basicConstraints=critical,CA:FALSE"]);
    server.args(["-addext", "extendedKeyUsage=serverAuth"]);
    server.args(["-keyout", FILES[2], "-out", FILES[1]]);
    process::run(&mut server).context("cannot make a certificate")?;
    Ok(settings(scratch))
}

/// Gives another server the same files, and returns the settings that use them.
pub(crate) fn copy(from: &Scratch, to: &Scratch) -> Result<String> {
    for file in FILES {
        let copy = to.path().join(file);
        fs::copy(from.path().join(file), &copy)?;
        to.give_away(&copy)?;
    }
    Ok(settings(to))
}

fn settings(scratch: &Scratch) -> String {
    let path = |file: &str| scratch.path().join(file).to_string_lossy().into_owned();
    conf_line("ssl", "on")
        + &conf_line("ssl_cert_file", &path(FILES[1]))
        + &conf_line("ssl_key_file", &path(FILES[2]))
}
