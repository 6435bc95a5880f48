//! Tenants that are enabled later: refused at start until the configuration has a policy.

use std::sync::Arc;

use super::support::{AT_ONCE, Receiver, Sidecar, oncebox, one_handler, post};

/// Returns a configuration with further settings of the inbox, and a source with a tenant.
fn with_tenants(url: &str, settings: &str) -> String {
    let inbox = format!("[inbox.orders]\n{settings}");
    let config = one_handler(url, AT_ONCE).replace("[inbox.orders]\n", &inbox);
    config + "[inbox.orders.http.orders]\ntenant = \"acme\"\n"
}

// FAULTS G5: the redelivery of a message from before tenants.
#[test]
fn tenants_enabled_later_are_refused_or_adopt_earlier_messages() {
    let handler = Receiver::good();
    let first = Sidecar::with(&(one_handler(&handler.url(), AT_ONCE) + "[inbox.orders.http.orders]\n"));
    assert_eq!(post(&first.url("orders"), "1", "t", "{}").status, 202);
    handler.wait_for(1);
    let dir = Arc::clone(&first.dir);
    let required = with_tenants(&handler.url(), "tenants = \"required\"\n");
    first.write_config(&required);
    first.signal("HUP");
    first.wait_words(&["old configuration kept", "`tenants` = off", "adopted_tenant"]);
    first.stop();

    let refused = oncebox(dir.path(), &["serve", "--listen", "127.0.0.1:0"]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{said}");
    for part in
        ["\"orders\"", "`tenants` = off", "`tenants` = required", "adopted_tenant", "on_tenants_change"]
    {
        assert!(said.contains(part), "{part}: {said}");
    }

    let adopts = with_tenants(&handler.url(), "tenants = \"required\"\nadopted_tenant = \"acme\"\n");
    std::fs::write(dir.path().join("oncebox.toml"), adopts).unwrap();
    let second = Sidecar::start(Arc::clone(&dir), &[], &[]);
    assert_eq!(post(&second.url("orders"), "1", "t", "{}").status, 200, "known");
    assert_eq!(post(&second.url("orders"), "2", "t", "{}").status, 202);
    handler.wait_for(2);
    second.stop();
    assert_eq!(handler.requests().len(), 2, "each once");

    let accepts = with_tenants(&handler.url(), "tenants = \"required\"\non_tenants_change = \"accept\"\n");
    std::fs::write(dir.path().join("oncebox.toml"), accepts).unwrap();
    let third = Sidecar::start(dir, &[], &[]);
    assert_eq!(post(&third.url("orders"), "1", "t", "{}").status, 202);
    handler.wait_for(3);
    third.stop();
}
