//! Replica, TLS and pooler.

use oncebox_servers::shared::SharedServers;
use oncebox_servers::{Cluster, PgBouncer, PoolMode, PostgresVersion};

#[test]
fn a_replica_follows_and_takes_over() {
    for version in [PostgresVersion::Debian, PostgresVersion::Newest] {
        let primary = Cluster::start(version).unwrap();
        primary.sql("postgres", "create table t as select 1 as a").unwrap();
        let replica = primary.replica().unwrap();
        assert_eq!(replica.sql("postgres", "select pg_is_in_recovery(), count(*) from t").unwrap(), "t|1");
        primary.sql("postgres", "insert into t values (2)").unwrap();
        replica.wait_for_replay(&primary).unwrap();
        assert_eq!(replica.sql("postgres", "select count(*) from t").unwrap(), "2");
        assert!(replica.sql("postgres", "insert into t values (3)").is_err(), "it only reads");

        primary.kill9().unwrap();
        replica.promote().unwrap();
        replica.sql("postgres", "insert into t values (3)").unwrap();
        assert_eq!(replica.sql("postgres", "select count(*) from t").unwrap(), "3");
    }
}

#[test]
fn a_commit_can_wait_for_replicas_by_name() {
    let primary = Cluster::start(PostgresVersion::Debian).unwrap();
    let first = primary.replica().unwrap();
    let second = primary.replica().unwrap();
    primary.configure("synchronous_standby_names", "FIRST 1 (replica2, replica1)").unwrap();
    let state = "select application_name, sync_state from pg_stat_replication order by 1";
    let synchronous = "exists (select from pg_stat_replication where application_name = 'replica2' and sync_state = 'sync')";
    primary.wait_for("postgres", synchronous).unwrap();
    assert_eq!(primary.sql("postgres", state).unwrap(), "replica1|potential\nreplica2|sync");
    // The commit waited for the replica, so the table is there even if the replica has not shown it yet.
    primary.sql("postgres", "create table t ()").unwrap();
    second.wait_for("postgres", "to_regclass('t') is not null").unwrap();
    first.wait_for_replay(&primary).unwrap();
}

#[test]
fn a_replica_does_not_wait_for_replicas_once_it_is_promoted() {
    let primary = Cluster::start(PostgresVersion::Debian).unwrap();
    primary.sql("postgres", "create table t (a int)").unwrap();
    primary.configure("synchronous_standby_names", "replica1").unwrap();
    let replica = primary.replica().unwrap();
    primary.kill9().unwrap();
    replica.promote().unwrap();
    assert_eq!(replica.sql("postgres", "show synchronous_standby_names").unwrap(), "");
    replica.sql("postgres", "insert into t values (1)").unwrap();
}

#[test]
fn tls_is_offered_with_a_certificate_that_can_be_checked() {
    let cluster = Cluster::builder(PostgresVersion::Debian)
        .tls()
        .hba("local all all trust\nhostssl all all 127.0.0.1/32 trust\nhostssl replication all 127.0.0.1/32 trust\n")
        .start()
        .unwrap();
    let replica = cluster.replica().unwrap();
    for server in [&cluster, &replica] {
        let psql = |mode: &str| {
            let ca = server.ca_file().unwrap();
            let conninfo = format!(
                "host=localhost hostaddr=127.0.0.1 port={} user=oncebox dbname=postgres sslmode={mode} sslrootcert={}",
                server.port(),
                ca.display()
            );
            let program =
                oncebox_servers::PostgresInstall::binaries(PostgresVersion::Debian).unwrap().tool("psql");
            let mut psql = std::process::Command::new(program);
            psql.args(["-X", "-qAt", "-c", "select ssl from pg_stat_ssl where pid = pg_backend_pid()"]);
            psql.args(["-d", &conninfo]).output().unwrap()
        };
        let checked = psql("verify-full");
        assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
        assert_eq!(checked.stdout, b"t\n");
        let plain = psql("disable");
        assert!(!plain.status.success() && String::from_utf8_lossy(&plain.stderr).contains("no encryption"));
    }
    assert!(Cluster::start(PostgresVersion::Debian).unwrap().ca_file().is_none());
}

#[test]
fn the_newest_says_that_it_has_no_tls() {
    let error = Cluster::builder(PostgresVersion::Newest).tls().start().unwrap_err().to_string();
    assert!(error.contains("without TLS"), "{error}");
}

#[test]
fn a_pooler_gives_one_connection_to_several_clients_in_turn() {
    let cluster = Cluster::start(PostgresVersion::Debian).unwrap();
    cluster.create_database("orders").unwrap();
    for (mode, same) in [(PoolMode::Transaction, true), (PoolMode::Session, false)] {
        let pgbouncer = PgBouncer::start(&cluster, mode).unwrap();
        let psql = oncebox_servers::PostgresInstall::binaries(PostgresVersion::Debian).unwrap().tool("psql");
        // The second client comes while the first is still connected, between two transactions.
        let command = format!(
            "select pg_backend_pid();\n\\! {} -X -qAt -d {} -c 'select pg_backend_pid()'\n",
            psql.display(),
            pgbouncer.url("orders")
        );
        let script = cluster.socket_dir().join("script.sql");
        std::fs::write(&script, command).unwrap();
        let mut first = std::process::Command::new(&psql);
        first.args(["-X", "-qAt", "-d", &pgbouncer.url("orders"), "-f"]).arg(&script);
        let output = first.output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let pids: Vec<&str> = text.lines().collect();
        assert_eq!(pids.len(), 2, "{text} {}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(pids[0] == pids[1], same, "{mode}: {pids:?}");
        let port = pgbouncer.port();
        drop(pgbouncer);
        assert!(std::net::TcpStream::connect(("127.0.0.1", port)).is_err());
    }
}

#[test]
fn the_shared_servers_are_what_their_variables_say() {
    let servers = SharedServers::start().unwrap();
    let psql = oncebox_servers::PostgresInstall::binaries(PostgresVersion::Debian).unwrap().tool("psql");
    let answers = servers.variables().map(|(name, url)| {
        let mut command = std::process::Command::new(&psql);
        command.args([
            "-X",
            "-qAt",
            "-d",
            &url,
            "-c",
            "select split_part(version(), ' ', 2), inet_server_port()",
        ]);
        command.args(["-c", "show max_connections"]);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
        (name, url, String::from_utf8(output.stdout).unwrap())
    });
    let [(debian, url, first), (newest, _, second), (pgbouncer, pooled_url, third)] = answers;
    assert_eq!(
        [debian, newest, pgbouncer],
        ["ONCEBOX_POSTGRES", "ONCEBOX_POSTGRES_NEWEST", "ONCEBOX_PGBOUNCER"]
    );
    assert!(first.ends_with("\n400\n") && second.ends_with("\n400\n"), "{first} {second}");
    assert!(second.starts_with(oncebox_servers::NEWEST), "{second}");
    assert_eq!(first, third, "the pooler leads to the first");
    assert_ne!(url, pooled_url);
}
