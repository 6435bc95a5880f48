//! Methods of a server, in both versions.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::{fs, panic};

use oncebox_servers::{Cluster, NEWEST, PostgresVersion};

#[test]
fn both_versions_start_empty_and_keep_what_they_are_told() {
    for version in [PostgresVersion::Debian, PostgresVersion::Newest] {
        let cluster = Cluster::builder(version).set("application_name", "it's \\ mine").start().unwrap();
        cluster.create_database("Or\"ders").unwrap();
        cluster.sql("Or\"ders", "create table t (a int, b text)").unwrap();
        cluster.sql("Or\"ders", "insert into t values (1, 'ä'), (2, null)").unwrap();
        assert_eq!(cluster.sql("Or\"ders", "select * from t order by a").unwrap(), "1|ä\n2|");

        let setting = |name: &str| {
            cluster
                .sql("postgres", &format!("select reset_val from pg_settings where name = '{name}'"))
                .unwrap()
        };
        assert_eq!(cluster.sql("postgres", "select current_user").unwrap(), "oncebox");
        assert_eq!((setting("server_encoding"), setting("lc_messages")), ("UTF8".into(), "C.UTF-8".into()));
        assert_eq!(setting("fsync"), "off");
        let in_file = "select setting from pg_file_settings where name = 'application_name'";
        assert_eq!(cluster.sql("postgres", in_file).unwrap(), "it's \\ mine");
        assert_eq!(cluster.version(), version);
        assert_eq!(setting("data_directory"), cluster.data_dir().to_str().unwrap());
        assert_eq!(setting("unix_socket_directories"), cluster.socket_dir().to_str().unwrap());
        assert_eq!(cluster.url("x"), format!("postgres://oncebox@127.0.0.1:{}/x", cluster.port()));

        cluster.configure("work_mem", "8MB").unwrap();
        cluster.wait_for("postgres", "current_setting('work_mem') = '8MB'").unwrap();
        let error = cluster.sql("postgres", "select nonsense").unwrap_err().to_string();
        assert!(error.contains("nonsense") && error.contains("does not exist"), "{error}");
        let is_newest = cluster.sql("postgres", "show server_version").unwrap().starts_with(NEWEST);
        assert_eq!(is_newest, version == PostgresVersion::Newest);
    }
}

#[test]
fn a_durable_one_waits_for_the_disk() {
    let parent = tempfile::Builder::new().prefix("disk").tempdir().unwrap();
    // Otherwise the user of the servers cannot enter it.
    fs::set_permissions(parent.path(), fs::Permissions::from_mode(0o711)).unwrap();
    let builder = Cluster::builder(PostgresVersion::Debian).durable(true).inside(parent.path());
    let cluster = builder.start().unwrap();
    assert_eq!(cluster.sql("postgres", "show fsync").unwrap(), "on");
    assert!(cluster.data_dir().starts_with(parent.path().canonicalize().unwrap()));
    drop(cluster);
    assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
}

#[test]
fn it_can_be_stopped_in_three_ways_and_started_again() {
    let cluster = Cluster::start(PostgresVersion::Debian).unwrap();
    let count = || cluster.sql("postgres", "select count(*) from t").unwrap();
    cluster.sql("postgres", "create table t as select 1").unwrap();

    cluster.stop().unwrap();
    assert!(cluster.sql("postgres", "select 1").is_err(), "it is stopped");
    assert!(cluster.kill9().unwrap_err().to_string().contains("is not running"));
    cluster.start_again().unwrap();
    assert_eq!(count(), "1");
    let error = cluster.start_again().unwrap_err().to_string();
    assert!(error.contains("is still running"), "{error}");

    cluster.sql("postgres", "insert into t values (2)").unwrap();
    cluster.stop_immediate().unwrap();
    cluster.start_again().unwrap();
    assert_eq!(count(), "2");
    assert!(cluster.log_text().unwrap().contains("automatic recovery in progress"));

    let started = || cluster.sql("postgres", "select pg_postmaster_start_time()").unwrap();
    let before = started();
    cluster.restart().unwrap();
    assert_ne!(started(), before);
}

// A server removes its lock file before it ends, and may stay for a while on a busy machine.
#[test]
fn a_server_has_stopped_when_its_last_process_has_ended() {
    let cluster = Cluster::start(PostgresVersion::Debian).unwrap();
    for stop in [Cluster::stop, Cluster::stop_immediate] {
        // It ends some time after the lock file.
        let slow =
            "while [ -e postmaster.pid ]; do :; done; i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done";
        let mut straggler = Command::new("sh");
        let straggler = straggler.args(["-c", slow]).current_dir(cluster.data_dir()).spawn().unwrap();
        let waiting = std::thread::spawn(move || straggler.wait_with_output());
        stop(&cluster).unwrap();
        cluster.start_again().unwrap();
        assert!(waiting.join().unwrap().unwrap().status.success());
    }
}

#[test]
fn many_have_ports_and_data_of_their_own() {
    let clusters: Vec<Cluster> = std::thread::scope(|scope| {
        let starts: Vec<_> =
            (0..3).map(|_| scope.spawn(|| Cluster::start(PostgresVersion::Debian).unwrap())).collect();
        starts.into_iter().map(|start| start.join().unwrap()).collect()
    });
    for cluster in &clusters {
        cluster.create_database("mine").unwrap();
    }
}

#[test]
fn a_test_that_panics_leaves_nothing() {
    let mut left: Option<(PathBuf, u16)> = None;
    let panicked = panic::catch_unwind(panic::AssertUnwindSafe(|| {
        let cluster = Cluster::start(PostgresVersion::Debian).unwrap();
        left = Some((cluster.socket_dir().to_path_buf(), cluster.port()));
        panic!("as a test does that fails");
    }));
    assert!(panicked.is_err());
    let (dir, port) = left.unwrap();
    assert!(!dir.exists(), "{} is still there", dir.display());
    assert!(std::net::TcpStream::connect(("127.0.0.1", port)).is_err());
}

#[test]
fn a_server_that_cannot_start_says_why() {
    let error = Cluster::builder(PostgresVersion::Debian).set("shared_buffers", "much").start().unwrap_err();
    let text = format!("{error:#}");
    assert!(text.contains("shared_buffers") && text.contains("much"), "{text}");
}
