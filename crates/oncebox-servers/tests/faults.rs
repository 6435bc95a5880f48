//! Faults of a server.

use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs};

use oncebox_servers::{Cluster, PostgresVersion};

/// Returns the processes that work in a directory.
fn working_in(dir: &Path) -> usize {
    let processes = fs::read_dir("/proc").expect("Linux has it").flatten();
    processes.filter(|entry| fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd == dir)).count()
}

#[test]
fn a_killed_server_is_gone_with_all_its_processes_and_recovers() {
    for version in [PostgresVersion::Debian, PostgresVersion::Newest] {
        let cluster = Cluster::start(version).unwrap();
        cluster.sql("postgres", "create table t as select 1").unwrap();
        cluster.kill9().unwrap();
        assert_eq!(working_in(cluster.data_dir()), 0);
        assert!(cluster.data_dir().join("postmaster.pid").exists(), "no process was left to remove it");
        cluster.start_again().unwrap();
        assert_eq!(cluster.sql("postgres", "select count(*) from t").unwrap(), "1");
    }
}

#[test]
fn a_stale_number_of_another_process_is_no_obstacle() {
    let cluster = Cluster::start(PostgresVersion::Debian).unwrap();
    cluster.kill9().unwrap();
    // PostgreSQL takes a process of the same user, such as another server's, for its former self.
    let other = Cluster::start(PostgresVersion::Debian).unwrap();
    let theirs = fs::read_to_string(other.data_dir().join("postmaster.pid")).unwrap();
    let stale = cluster.data_dir().join("postmaster.pid");
    let text = fs::read_to_string(&stale).unwrap();
    let (_, rest) = text.split_once('\n').unwrap();
    let (pid, _) = theirs.split_once('\n').unwrap();
    fs::write(&stale, format!("{pid}\n{rest}")).unwrap();
    cluster.start_again().unwrap();
    other.sql("postgres", "select 1").unwrap();
}

#[test]
fn a_dropped_server_leaves_no_shared_memory_though_it_was_killed() {
    let cluster = Cluster::start(PostgresVersion::Debian).unwrap();
    let pid_file = fs::read_to_string(cluster.data_dir().join("postmaster.pid")).unwrap();
    let segment = pid_file.lines().nth(6).unwrap().split_whitespace().last().unwrap().to_owned();
    let exists = || {
        let all = fs::read_to_string("/proc/sysvipc/shm").unwrap();
        all.lines().any(|line| line.split_whitespace().nth(1) == Some(&segment))
    };
    cluster.kill9().unwrap();
    assert!(exists());
    drop(cluster);
    assert!(!exists());
}

/// Sends a TLS request to a server, which responds with one letter.
fn greet(port: u16) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("the kernel connects");
    stream.write_all(&[0, 0, 0, 8, 4, 210, 22, 47]).expect("the kernel takes it");
    stream
}

#[test]
fn a_suspended_server_takes_connections_and_answers_once_it_goes_on() {
    let cluster = Cluster::start(PostgresVersion::Debian).unwrap();
    cluster.suspend().unwrap();
    let mut stream = greet(cluster.port());
    stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let mut answer = [0];
    assert_eq!(stream.read_exact(&mut answer).unwrap_err().kind(), ErrorKind::WouldBlock);
    cluster.resume().unwrap();
    stream.set_read_timeout(Some(Duration::from_mins(3))).unwrap();
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer, *b"N");
}

#[test]
fn a_server_can_be_suspended_as_a_whole_and_dropped_like_that() {
    let cluster = Cluster::start(PostgresVersion::Debian).unwrap();
    let data = cluster.data_dir().to_path_buf();
    cluster.suspend_all().unwrap();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        if fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd == data) {
            let status = fs::read_to_string(entry.path().join("status")).unwrap();
            assert!(status.contains("T (stopped)"), "{status}");
        }
    }
    let start = Instant::now();
    drop(cluster);
    assert!(!data.exists());
    assert!(start.elapsed() < Duration::from_mins(1));
}

#[test]
fn a_disk_runs_full_and_has_room_again() {
    let cluster = match Cluster::builder(PostgresVersion::Debian).tmpfs(112 << 20).start() {
        Ok(cluster) => cluster,
        // Without the right to mount, the error must name the missing privilege.
        Err(error) => {
            assert!(format!("{error:#}").contains("mount"), "{error:#}");
            return;
        }
    };
    cluster.sql("postgres", "create table t (a text)").unwrap();
    let ballast = cluster.fill_disk().unwrap();
    let insert = "insert into t select repeat('x', 1000) from generate_series(1, 10000)";
    let error = cluster.sql("postgres", insert).unwrap_err().to_string();
    assert!(error.contains("No space left on device"), "{error}");
    drop(ballast);
    cluster.sql("postgres", insert).unwrap();
    let data = cluster.data_dir().to_path_buf();
    drop(cluster);
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(!data.exists() && !mounts.contains(data.to_str().unwrap()), "{mounts}");
}

#[test]
fn the_machine_s_own_disk_is_never_filled() {
    let cluster = Cluster::start(PostgresVersion::Debian).unwrap();
    let error = format!("{:#}", cluster.fill_disk().unwrap_err());
    assert!(error.contains("build it with `tmpfs`"), "{error}");
}

/// Plays two roles: started by itself with the variable, it owns a server and gets killed.
#[test]
fn a_killed_owner_leaves_nothing() {
    const OWNER: &str = "ONCEBOX_TEST_OWNER";
    if env::var_os(OWNER).is_some() {
        let cluster = Cluster::start(PostgresVersion::Debian).unwrap();
        println!("\nserver in {}", cluster.data_dir().display());
        std::io::stdin().read_line(&mut String::new()).unwrap();
        panic!("it was to be killed");
    }
    let mut owner = Command::new(env::current_exe().unwrap());
    owner.args(["--exact", "a_killed_owner_leaves_nothing", "--nocapture"]).env(OWNER, "1");
    let mut owner = owner.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(owner.stdout.take().unwrap()).lines();
    let mut named =
        lines.map_while(Result::ok).filter_map(|line| Some(line.strip_prefix("server in ")?.into()));
    let data: PathBuf = named.next().unwrap();
    assert!(working_in(&data) > 1);
    owner.kill().unwrap();
    owner.wait().unwrap();

    let start = Instant::now();
    while data.parent().unwrap().exists() {
        assert!(start.elapsed() < Duration::from_mins(1), "{} is still there", data.display());
        std::thread::yield_now();
    }
    assert_eq!(working_in(&data), 0);
}
