//! Handlers behind TLS.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::support::{AT_ONCE, Receiver, ReceiverTls, Reply, Sidecar, oncebox, one_handler, post};

fn openssl(dir: &Path, args: &[&str]) {
    let made = Command::new("openssl").current_dir(dir).args(args).output().expect("openssl is installed");
    assert!(made.status.success(), "{made:?}");
}

/// Creates an authority in `ca.crt`, and a server with its certificate.
fn authority(dir: &Path) -> ReceiverTls {
    let key =
        ["req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-x509", "-days", "2"];
    let ca = [
        "-subj",
        "/CN=test",
        "-addext",
        "keyUsage=critical,keyCertSign",
        "-keyout",
        "ca.key",
        "-out",
        "ca.crt",
    ];
    openssl(dir, &[&key[..], &ca].concat());
    let server = [
        "-subj",
        "/CN=localhost",
        "-CA",
        "ca.crt",
        "-CAkey",
        "ca.key",
        "-keyout",
        "server.key",
        "-out",
        "server.crt",
        "-addext",
        "subjectAltName=DNS:localhost,IP:127.0.0.1",
        "-addext",
        "basicConstraints=critical,CA:FALSE",
        "-addext",
        "extendedKeyUsage=serverAuth",
    ];
    openssl(dir, &[&key[..], &server].concat());
    let certificate = CertificateDer::from_pem_file(dir.join("server.crt")).unwrap();
    let key = PrivateKeyDer::from_pem_file(dir.join("server.key")).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config =
        rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    Arc::new(config.with_no_client_auth().with_single_cert(vec![certificate], key).unwrap())
}

/// FAULTS S17: only an authenticated server gets a message.
#[test]
fn a_handler_needs_a_trusted_certificate() {
    let dir = tempfile::tempdir().unwrap();
    let handler = Receiver::tls(authority(dir.path()), |_| Reply::status(200));
    let url = format!("https://localhost:{}/hook", handler.port);
    let untrusted = Sidecar::with(&one_handler(&url, AT_ONCE));
    post(&untrusted.url("orders"), "evt_1", "t", "{}");
    untrusted.wait_words(&["failed", "t evt_1", "certificate"]);
    untrusted.stop();
    assert_eq!(handler.requests().len(), 0);

    let trusting = format!("{AT_ONCE}ca_file = \"{}\"", dir.path().join("ca.crt").display());
    let friend = Sidecar::with(&one_handler(&url, &trusting));
    post(&friend.url("orders"), "evt_1", "t", "{}");
    friend.wait_words(&["delivered", "t evt_1"]);
    friend.stop();
    assert_eq!(handler.requests()[0].body, b"{}");
}

#[test]
fn a_file_without_certificates_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("empty.pem"), "nothing").unwrap();
    for (file, why) in [
        ("empty.pem", "\"empty.pem\" contains no certificate"),
        ("missing.pem", "\"missing.pem\" cannot be read"),
    ] {
        let config = one_handler("https://example.com/", &format!("ca_file = \"{file}\""));
        std::fs::write(dir.path().join("oncebox.toml"), config).unwrap();
        let output = oncebox(dir.path(), &["config", "check"]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains(why), "{said}");
    }
}

/// Runs curl; returns its output, and true if it succeeded.
fn curl(dir: &Path, args: &[&str]) -> (String, bool) {
    let asked = Command::new("curl").current_dir(dir).args(["-sS", "--max-time", "60"]).args(args).output();
    let asked = asked.expect("curl is installed");
    (String::from_utf8_lossy(&asked.stdout).into_owned(), asked.status.success())
}

/// FAULTS S7: the API is encrypted beyond this machine.
#[test]
fn the_api_uses_the_same_certificate_beyond_this_machine() {
    let dir = tempfile::tempdir().unwrap();
    authority(dir.path());
    let file = |name: &str| dir.path().join(name).display().to_string();
    let made = oncebox(dir.path(), &["token", "ada", "--role", "viewer"]);
    let said = String::from_utf8(made.stderr).unwrap();
    let token = said.lines().map(str::trim).find(|line| line.starts_with("obx_")).expect("a token");
    let table = String::from_utf8(made.stdout).unwrap();
    let config = |tls: &str, listen: &str| {
        let api = format!("[api]\nlisten = \"{listen}:0\"\n{table}\n[inbox.orders]\n");
        std::fs::write(dir.path().join("oncebox.toml"), format!("{tls}{api}")).unwrap();
        let checked = oncebox(dir.path(), &["config", "check"]);
        assert!(checked.status.success(), "{checked:?}");
        (format!("{tls}{api}"), String::from_utf8(checked.stderr).unwrap())
    };
    let tls = format!("tls = {{ certificate = {:?}, key = {:?} }}\n", file("server.crt"), file("server.key"));
    let (text, warned) = config(&tls, "0.0.0.0");
    assert_eq!(warned, "");
    let sidecar = Sidecar::with(&text);
    let line = sidecar.wait_words(&["https://0.0.0.0:", "/api/v1"]);
    let port = line.split("https://0.0.0.0:").nth(1).and_then(|rest| rest.split('/').next()).unwrap();
    let (url, bearer) = (format!("https://localhost:{port}"), format!("authorization: Bearer {token}"));
    let me = curl(dir.path(), &["--cacert", "ca.crt", "-H", &bearer, &format!("{url}/api/v1/me")]);
    assert!(me.1 && me.0.contains("\"ada\""), "{me:?}");
    assert!(!curl(dir.path(), &["-H", &bearer, &format!("http://localhost:{port}/api/v1/me")]).1);
    let status = Command::new(env!("CARGO_BIN_EXE_oncebox"))
        .args(["status", "--api", &url, "--inbox", "orders", "--json"])
        .env("ONCEBOX_TOKEN", token)
        .env("SSL_CERT_FILE", file("ca.crt"))
        .output()
        .expect("the binary runs");
    assert!(status.status.success(), "{status:?}");
    sidecar.stop();

    let (text, warned) = config("", "0.0.0.0");
    assert!(
        warned.contains("warning: `api.listen`") && warned.contains("reverse proxy with TLS"),
        "{warned}"
    );
    Sidecar::with(&text).wait_words(&["`api.listen`", "set `tls`"]);
    let (_, warned) = config("", "127.0.0.1");
    assert_eq!(warned, "", "this machine speaks to itself");
}

/// FAULTS S17: senders can verify the sidecar over HTTP/2 and HTTP/1.1, and a reload replaces the certificate.
#[test]
fn messages_arrive_over_tls_and_the_certificate_can_be_replaced() {
    let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    authority(first.path());
    authority(second.path());
    let handler = Receiver::good();
    let config = |dir: &Path| {
        let file = |name: &str| dir.join(name).display().to_string();
        let tls =
            format!("tls = {{ certificate = {:?}, key = {:?} }}\n", file("server.crt"), file("server.key"));
        tls + &one_handler(&handler.url(), AT_ONCE)
    };
    let sidecar = Sidecar::with(&config(first.path()));
    let port = sidecar.base.rsplit(':').next().unwrap().to_owned();
    let url = format!("https://localhost:{port}/in/orders");
    let send = |dir: &Path, id: &str, more: &[&str]| {
        let id = format!("message-id: {id}");
        let message = ["--cacert", "ca.crt", "-H", &id, "-H", "message-type: t", "-d", "{}"];
        let what = ["-o", "/dev/null", "-w", "%{http_code} %{http_version}", &url];
        curl(dir, &[&message[..], more, &what].concat())
    };
    assert_eq!(send(first.path(), "1", &[]), ("202 2".into(), true));
    assert_eq!(send(first.path(), "1", &["--http1.1"]), ("200 1.1".into(), true));
    assert!(!send(second.path(), "2", &[]).1, "another authority does not vouch for it");
    assert!(!curl(first.path(), &[&url.replace("https", "http")]).1, "nothing is spoken but TLS");
    sidecar.write_config(&config(second.path()));
    sidecar.signal("HUP");
    sidecar.wait_words(&["configuration reloaded"]);
    assert_eq!(send(second.path(), "2", &[]), ("202 2".into(), true));
    assert!(!send(first.path(), "3", &[]).1, "the old certificate is not shown any more");
    // An invalid certificate changes nothing.
    std::fs::write(second.path().join("server.key"), "no key").unwrap();
    sidecar.signal("HUP");
    sidecar.wait_words(&["old configuration kept", "no private key"]);
    assert_eq!(send(second.path(), "3", &[]), ("202 2".into(), true));
    handler.wait_for(3);
    sidecar.stop();
}
