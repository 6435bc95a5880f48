//! Several processes on one PostgreSQL.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use oncebox_servers::{Cluster, PostgresVersion};

use super::support::{AT_ONCE, PATIENCE, Receiver, Reply, Request, Sidecar, get, one_handler, post};

fn shared(handler: &str, more: &str) -> String {
    let handler = one_handler(handler, AT_ONCE);
    let inbox = "[inbox.orders]\nlease = \"1s\"\n";
    format!(
        "[store.main]\nurl = \"env:DATABASE_URL\"\n{more}\n{}",
        handler.replace("[inbox.orders]\n", inbox)
    )
    .replacen("[store.main]", "grace = \"5s\"\n[store.main]", 1)
    .replace("allow_private = [\"127.0.0.0/8\"]\n", "")
    .replacen("grace", "allow_private = [\"127.0.0.0/8\"]\ngrace", 1)
}

/// Counts the deliveries of each message to a path.
fn at(requests: &[Request], path: &str) -> BTreeMap<String, usize> {
    let mut all = BTreeMap::new();
    for request in requests.iter().filter(|request| request.path == path) {
        *all.entry(request.id().to_owned()).or_default() += 1;
    }
    all
}

/// I1, I4: one of two processes is killed while it delivers: nothing is lost, and whatever ran twice was in its hands.
#[test]
fn two_processes_share_the_work_and_one_may_die() {
    let cluster = Cluster::start(PostgresVersion::Debian).unwrap();
    cluster.create_database("orders").unwrap();
    let url = cluster.url("orders");
    // The one that will die never gets an answer.
    let handler = Receiver::new(|request| match request.path.as_str() {
        "/dying" => Reply::Silence,
        _ => Reply::status(200),
    });
    let base = format!("http://127.0.0.1:{}", handler.port);
    let env = [("DATABASE_URL", url.as_str())];
    let mut dying = Sidecar::with_env(&shared(&format!("{base}/dying"), ""), &env);
    let ids: BTreeSet<String> = (0..100).map(|number| format!("m{number}")).collect();
    for id in &ids {
        assert_eq!(post(&dying.url("orders"), id, "t", "{}").status, 202);
    }
    handler.wait_for(16);
    let living = Sidecar::with_env(&shared(&format!("{base}/living"), ""), &env);
    // A repeat that comes in at the other process is recognised there.
    assert_eq!(post(&living.url("orders"), "m0", "t", "{}").status, 200);
    dying.signal("KILL");
    assert_eq!(dying.wait().code(), None);
    handler.wait_until("every message at the one that lives", |all| at(all, "/living").len() == ids.len());
    living.stop();
    let (living, dead) = (at(&handler.requests(), "/living"), at(&handler.requests(), "/dying"));
    assert_eq!(living.keys().cloned().collect::<BTreeSet<_>>(), ids, "nothing is lost");
    assert!(living.values().all(|times| *times == 1), "each effect once at the one that lives: {living:?}");
    // Only the entries that the dead one was running ran twice.
    assert!(dead.values().all(|times| *times == 1), "{dead:?}");
    assert!(dead.len() <= 16, "no more than its concurrency: {dead:?}");
}

#[test]
fn tables_that_are_missing_are_made_or_the_way_is_told() {
    let cluster = Cluster::start(PostgresVersion::Debian).unwrap();
    cluster.create_database("orders").unwrap();
    let url = cluster.url("orders");
    let dir = tempfile::tempdir().unwrap();
    let handler = Receiver::good();
    std::fs::write(dir.path().join("oncebox.toml"), shared(&handler.url(), "migrate = false")).unwrap();
    let run = |args: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_oncebox"));
        command.current_dir(dir.path()).args(args).env("DATABASE_URL", &url).output().unwrap()
    };
    let output = run(&["serve", "--listen", "127.0.0.1:0"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("run `oncebox migrate apply --store main`"), "{said}");
    let printed = run(&["migrate", "print"]);
    let sql = String::from_utf8_lossy(&printed.stdout);
    assert!(sql.contains("CREATE TABLE") && printed.status.success(), "{printed:?}");
    let applied = run(&["migrate", "apply"]);
    assert_eq!(
        String::from_utf8_lossy(&applied.stdout),
        "main: applied steps 2 (inbox), 2 (functions)\n",
        "{applied:?}"
    );
    let again = run(&["migrate", "apply"]);
    assert_eq!(String::from_utf8_lossy(&again.stdout), "main: up to date\n", "{again:?}");
    let sidecar = Sidecar::with_env(&shared(&handler.url(), "migrate = false"), &[("DATABASE_URL", &url)]);
    post(&sidecar.url("orders"), "1", "t", "{}");
    handler.wait_for(1);
    sidecar.stop();
}

/// An operator who reads the log sees when it began, and when it was over.
#[test]
fn an_outage_is_logged_from_its_beginning_to_its_end() {
    let cluster = Cluster::start(PostgresVersion::Debian).unwrap();
    cluster.create_database("orders").unwrap();
    let url = cluster.url("orders");
    let handler = Receiver::good();
    let config = format!("{}\n[health]\nstore_unhealthy = \"2s\"\n", shared(&handler.url(), ""));
    let sidecar = Sidecar::with_env(&config, &[("DATABASE_URL", &url)]);
    post(&sidecar.url("orders"), "1", "t", "{}");
    handler.wait_for(1);
    cluster.stop().unwrap();
    let began = sidecar.wait_words(&["WARN", "the store has trouble"]);
    assert!(!began.contains("postgres://"), "J4: {began}");
    // For longer than a moment.
    let (ready, end) = (format!("{}/readyz", sidecar.base), Instant::now() + PATIENCE);
    while get(&ready).status != 503 {
        assert!(Instant::now() < end, "it is not ready");
    }
    cluster.start_again().unwrap();
    sidecar.wait_words(&["the store answers again"]);
    post(&sidecar.url("orders"), "2", "t", "{}");
    handler.wait_for(2);
    let lines = sidecar.stop();
    assert!(lines.iter().all(|line| !line.contains("time to acquire")), "{lines:#?}");
}

/// FAULTS C5: a sidecar that waits for its database stops at once.
#[test]
fn a_sidecar_that_waits_for_its_database_stops_on_request() {
    let config = "[store.main]\nurl = \"postgres://user:canary-password@127.0.0.1:9/none\"\n[inbox.orders]\n";
    let sidecar = Sidecar::early(config, &[]);
    let lines = sidecar.stop();
    assert!(lines.iter().all(|line| !line.contains("canary")), "J4: {lines:#?}");
}

#[test]
fn a_database_that_refuses_us_is_not_waited_for() {
    let cluster = Cluster::start(PostgresVersion::Debian).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let config = "[store.main]\nurl = \"env:DATABASE_URL\"\n[inbox.orders]\n";
    std::fs::write(dir.path().join("oncebox.toml"), config).unwrap();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_oncebox"));
    command.current_dir(dir.path()).args(["serve", "--listen", "127.0.0.1:0"]);
    let output = command.env("DATABASE_URL", cluster.url("no_such_database")).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("cannot open the store \"main\"") && said.contains("no_such_database"), "{said}");
}

/// FAULTS I2: a handler that is added later gets what is stored.
#[test]
fn a_handler_that_is_new_gets_what_is_stored() {
    let cluster = Cluster::start(PostgresVersion::Debian).unwrap();
    cluster.create_database("orders").unwrap();
    let url = cluster.url("orders");
    let env = [("DATABASE_URL", url.as_str())];
    let before = Sidecar::with_env("[store.main]\nurl = \"env:DATABASE_URL\"\n[inbox.orders]\n", &env);
    assert_eq!(post(&before.url("orders"), "1", "t", "{}").status, 202);
    before.stop();
    let handler = Receiver::good();
    let after = Sidecar::with_env(&(shared(&handler.url(), "") + "backfill = true\n"), &env);
    assert_eq!(handler.wait_for(1)[0].id(), "1");
    after.stop();
}
