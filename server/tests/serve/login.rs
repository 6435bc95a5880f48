//! Rotation of a database password while the sidecar runs.

use std::sync::Arc;

use oncebox_servers::{Cluster, PostgresVersion};
use tempfile::TempDir;

use super::support::{AT_ONCE, Receiver, Sidecar, one_handler, post};

/// FAULTS E4, E5: the server ends the sessions and refuses the login, and senders are told to retry. SIGHUP reads the new password;
/// a refused one changes nothing.
#[test]
fn a_rotated_password_is_read_again_without_a_restart() {
    rotate(|port| format!("127.0.0.1:{port}"));
}

/// The second host is unavailable.
#[test]
fn a_rotated_password_is_read_again_where_the_url_names_several_hosts() {
    rotate(|port| format!("127.0.0.1:{port},127.0.0.1:9"));
}

fn rotate(hosts: impl Fn(u16) -> String) {
    let hba = "local all all trust\nhost all app,other 127.0.0.1/32 scram-sha-256\n";
    let cluster = Cluster::builder(PostgresVersion::Debian).hba(hba).start().unwrap();
    cluster.create_database("orders").unwrap();
    let sql = |statement: &str| cluster.sql("postgres", statement).unwrap();
    sql("create role app login password 'old-canary'");
    sql("alter database orders owner to app");
    let url = |password: &str, database: &str| {
        format!("postgres://app:{password}@{}/{database}\n", hosts(cluster.port()))
    };
    let handler = Receiver::good();
    let config = one_handler(&handler.url(), AT_ONCE) + "[store.main]\nurl = \"file:database-url\"\n";
    let dir = Arc::new(TempDir::new().unwrap());
    let write_url = |text: &str| std::fs::write(dir.path().join("database-url"), text).unwrap();
    write_url(&url("old-canary", "orders"));
    std::fs::write(dir.path().join("oncebox.toml"), &config).unwrap();
    let sidecar = Sidecar::start(Arc::clone(&dir), &[], &[]);
    assert_eq!(post(&sidecar.url("orders"), "1", "t", "{}").status, 202);
    handler.wait_for(1);

    sql("alter role app password 'new-canary'");
    sql("select pg_terminate_backend(pid) from pg_stat_activity where usename = 'app'");
    for _ in 0..20 {
        let answer = post(&sidecar.url("orders"), "2", "t", "{}");
        assert_eq!(answer.status, 503, "{answer:?}");
        assert!(answer.header("retry-after").is_some(), "{answer:?}");
    }
    for (refused, why) in [
        (url("wrong-canary", "orders"), "cannot use the new login of the store \"main\""),
        (url("new-canary", "postgres"), "changed beyond its login and keys, which needs a restart"),
    ] {
        write_url(&refused);
        sidecar.signal("HUP");
        sidecar.wait_words(&["old configuration kept", why]);
    }
    // A configuration that cannot start, with a login that can: the former one is refused by now, so the new one is kept.
    write_url(&url("new-canary", "orders"));
    let refused = config.replace("[inbox.orders]\n", "[inbox.orders]\ntenants = \"required\"\n")
        + "[inbox.orders.http.orders]\ntenant = \"acme\"\n";
    sidecar.write_config(&refused);
    sidecar.signal("HUP");
    sidecar.wait_words(&["old configuration kept", "`tenants` = off"]);
    sidecar.wait_words(&["former login refused, new one kept"]);
    sidecar.write_config(&config);
    write_url(&url("new-canary", "orders"));
    sidecar.signal("HUP");
    sidecar.wait_words(&["new connections use the new login"]);
    sidecar.wait_words(&["configuration reloaded"]);
    assert_eq!(post(&sidecar.url("orders"), "2", "t", "{}").status, 202);
    handler.wait_for(2);
    // And with a former login that still works: that one is used again.
    sql("create role other login password 'other-canary' in role app");
    write_url(&url("other-canary", "orders").replace("//app:", "//other:"));
    sidecar.write_config(&refused);
    sidecar.signal("HUP");
    sidecar.wait_words(&["former login restored"]);
    sql("alter role other nologin");
    sql("select pg_terminate_backend(pid) from pg_stat_activity where usename in ('app', 'other')");
    let again = std::iter::repeat_with(|| post(&sidecar.url("orders"), "3", "t", "{}").status);
    assert_eq!(again.take(100).find(|status| *status != 503), Some(202));
    handler.wait_for(3);
    let lines = sidecar.stop();
    assert!(lines.iter().all(|line| !line.contains("canary")), "J4: {lines:#?}");
}
