//! FAULTS S16: checks the address of a handler for every connection, after resolving its name.

use super::support::{AT_ONCE, Receiver, Reply, Sidecar, oncebox, post};

fn config(allow: &str, url: &str) -> String {
    format!("{allow}\n[inbox.orders]\n[inbox.orders.handler.ship]\nurl = \"{url}\"\n{AT_ONCE}")
}

/// Runs `config check`.
fn checked(allow: &str, url: &str) -> (Option<i32>, String) {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("oncebox.toml"), config(allow, url)).unwrap();
    let output = oncebox(dir.path(), &["config", "check"]);
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn addresses_that_are_not_public_are_refused_at_the_start() {
    for (url, what) in [
        ("http://127.0.0.1:9000/", "127.0.0.1, a loopback address"),
        ("http://2130706433/", "127.0.0.1, a loopback address"),
        ("http://localhost:9000/", "127.0.0.1, a loopback address"),
        ("http://[::1]/", "::1, a loopback address"),
        ("http://[::ffff:10.0.0.1]/", "::ffff:10.0.0.1, a private address"),
        ("http://0.0.0.0/", "an address of \"this network\""),
        ("http://10.0.0.7/", "a private address"),
        ("http://169.254.169.254/latest/meta-data", "the address of a cloud's metadata service"),
        ("http://[64:ff9b::7f00:1]/", "a NAT64 address"),
    ] {
        let (code, said) = checked("", url);
        assert_eq!(code, Some(2), "{url}: {said}");
        assert!(said.contains(what) && said.contains("allow_private"), "{url}: {said}");
    }
    for url in ["http://127.0.0.1:9000/", "http://localhost:9000/", "http://10.0.0.7/"] {
        assert_eq!(checked("allow_private = true", url).0, Some(0), "{url}");
    }
    assert_eq!(checked("allow_private = true", "http://169.254.169.254/").0, Some(2), "by the list alone");
    assert_eq!(checked("allow_private = [\"169.254.169.254/32\"]", "http://169.254.169.254/").0, Some(0));
    for wide in ["0.0.0.0/0", "169.254.0.0/16"] {
        let allow = format!("allow_private = [\"{wide}\"]");
        assert_eq!(checked(&allow, "http://169.254.169.254/").0, Some(2), "by its own address alone");
    }
    assert_eq!(checked("allow_private = [\"10.0.0.0/8\"]", "http://127.0.0.1/").0, Some(2));
}

/// Returns the name of this machine, which resolves to a non-public address.
fn name_of_this_machine() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    name.trim().to_owned()
}

#[test]
fn a_name_of_this_machine_is_refused_when_it_is_resolved() {
    let handler = Receiver::good();
    let url = format!("http://{}:{}/hook", name_of_this_machine(), handler.port);
    // Allows only reserved addresses, so that the check at the start cannot know the name.
    let sidecar = Sidecar::with(&config("allow_private = [\"192.0.2.0/24\"]", &url));
    post(&sidecar.url("orders"), "evt_1", "t", "{}");
    sidecar.wait_words(&["failed", "t evt_1", &name_of_this_machine(), "add it to `allow_private`"]);
    sidecar.wait_words(&["poisoned", "t evt_1"]);
    assert_eq!(handler.requests().len(), 0, "it was never connected to");
}

#[test]
fn an_allowed_name_is_accepted() {
    let handler = Receiver::at_all(|_| Reply::status(200));
    let url = format!("http://{}:{}/hook", name_of_this_machine(), handler.port);
    let sidecar = Sidecar::with(&config("allow_private = true", &url));
    post(&sidecar.url("orders"), "evt_1", "t", "{}");
    sidecar.wait_words(&["delivered", "t evt_1"]);
}

#[test]
fn a_proxy_in_the_environment_is_not_used() {
    let (proxy, handler) = (Receiver::good(), Receiver::good());
    let proxied = [("http_proxy", proxy.url()), ("HTTP_PROXY", proxy.url()), ("ALL_PROXY", proxy.url())];
    let env: Vec<(&str, &str)> = proxied.iter().map(|(name, url)| (*name, url.as_str())).collect();
    let sidecar = Sidecar::with_env(&config("allow_private = true", &handler.url()), &env);
    post(&sidecar.url("orders"), "evt_1", "t", "{}");
    sidecar.wait_words(&["delivered", "t evt_1"]);
    assert_eq!((proxy.requests().len(), handler.requests().len()), (0, 1));
}
