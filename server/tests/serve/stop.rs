//! C5: stopping loses nothing, counts nothing, and does not take for ever.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::support::{AT_ONCE, Receiver, Reply, Request, Sidecar, oncebox, one_handler, post};

#[test]
fn what_runs_is_finished_and_what_does_not_finish_is_given_back() {
    let stuck = Receiver::new(|request| match request.id() {
        "stuck" => Reply::Silence,
        _ => Reply::status(200),
    });
    let config = format!("grace = \"300ms\"\n{}", one_handler(&stuck.url(), "retry = \"never\""));
    let sidecar = Sidecar::with(&config);
    post(&sidecar.url("orders"), "stuck", "t", "{}");
    stuck.wait_for(1);
    let dir = Arc::clone(&sidecar.dir);
    let lines = sidecar.stop();
    assert!(lines.iter().any(|line| line.contains("stopping")), "{lines:#?}");
    // It was no attempt: with another handler it is delivered, though it may be tried only once.
    let good = Receiver::good();
    std::fs::write(dir.path().join("oncebox.toml"), one_handler(&good.url(), "retry = \"never\"")).unwrap();
    let sidecar = Sidecar::start(dir, &[], &[]);
    sidecar.wait_words(&["delivered", "t stuck", "attempt 1"]);
    sidecar.stop();
}

#[test]
fn stopping_under_load_loses_nothing() {
    let handler = Receiver::good();
    let sidecar = Sidecar::with(&one_handler(&handler.url(), AT_ONCE));
    let (url, stop) = (sidecar.url("orders"), Arc::new(AtomicBool::new(false)));
    let senders: Vec<_> = (0..4)
        .map(|sender| {
            let (url, stop) = (url.clone(), Arc::clone(&stop));
            std::thread::spawn(move || {
                let mut acknowledged = Vec::new();
                for number in 0.. {
                    let id = format!("{sender}-{number}");
                    let headers = [("message-id", &*id), ("message-type", "t")];
                    match super::support::request("POST", &url, &headers, b"{}") {
                        Ok(answer) if answer.status == 202 => acknowledged.push(id),
                        // Neither yes nor no: it may be there or not.
                        _ if stop.load(Ordering::Relaxed) => break,
                        other => panic!("{other:?}"),
                    }
                }
                acknowledged
            })
        })
        .collect();
    handler.wait_for(50);
    let dir = Arc::clone(&sidecar.dir);
    stop.store(true, Ordering::Relaxed);
    sidecar.stop();
    let acknowledged: Vec<String> = senders.into_iter().flat_map(|sender| sender.join().unwrap()).collect();
    let sidecar = Sidecar::start(dir, &[], &[]);
    // I1: what was acknowledged is delivered; I4: and once, because nothing died.
    handler.wait_until("every acknowledged message", |requests| {
        let delivered: std::collections::HashSet<&str> = requests.iter().map(Request::id).collect();
        acknowledged.iter().all(|id| delivered.contains(&**id))
    });
    sidecar.stop();
    let requests = handler.requests();
    let ids: std::collections::HashSet<&str> = requests.iter().map(Request::id).collect();
    assert_eq!(ids.len(), requests.len(), "nothing was delivered twice");
}

#[test]
fn a_second_signal_stops_at_once() {
    let stuck = Receiver::new(|_| Reply::Silence);
    let config = format!("grace = \"1h\"\n{}", one_handler(&stuck.url(), "timeout = \"1h\""));
    let mut sidecar = Sidecar::with(&config);
    post(&sidecar.url("orders"), "1", "t", "{}");
    stuck.wait_for(1);
    sidecar.signal("INT");
    sidecar.wait_words(&["stopping"]);
    sidecar.signal("INT");
    assert_eq!(sidecar.wait().code(), Some(130));
}

#[test]
fn systemd_is_notified() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notify");
    let socket = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(super::support::PATIENCE)).unwrap();
    let heard = || {
        let mut buffer = [0; 64];
        let length = socket.recv(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    };
    let env = [("NOTIFY_SOCKET", path.to_str().unwrap())];
    let sidecar = Sidecar::with_env("[inbox.orders]", &env);
    assert_eq!(heard(), "READY=1");
    sidecar.signal("HUP");
    assert_eq!((heard(), heard()), ("RELOADING=1".into(), "READY=1".into()));
    sidecar.stop();
    assert_eq!(heard(), "STOPPING=1");
}

/// The file of a stopped sidecar contains every message, so a backup needs no write-ahead log.
#[test]
fn the_database_file_alone_holds_everything_after_a_clean_stop() {
    let handler = Receiver::new(|_| Reply::Status(500, "", String::new()));
    let sidecar = Sidecar::with(&one_handler(&handler.url(), "retry = { attempts = 9, first = \"1h\" }"));
    for number in 0..50 {
        assert_eq!(post(&sidecar.url("orders"), &number.to_string(), "t", "{}").status, 202);
    }
    handler.wait_for(50);
    let dir = Arc::clone(&sidecar.dir);
    sidecar.stop();
    let log = dir.path().join("oncebox.db-wal");
    assert_eq!(std::fs::metadata(log).map_or(0, |log| log.len()), 0, "the log is empty or gone");
    let copy = Arc::new(tempfile::TempDir::new().unwrap());
    std::fs::copy(dir.path().join("oncebox.db"), copy.path().join("oncebox.db")).unwrap();
    let at = ["--store", "sqlite:oncebox.db", "--inbox", "orders"];
    let again = ["--actor", "ada", "--reason", "restored", "--handler", "ship", "--confirm"];
    let retried = oncebox(copy.path(), &[&["retry"][..], &at[..], &again[..]].concat());
    let left = std::fs::metadata(copy.path().join("oncebox.db-wal")).map_or(0, |log| log.len());
    assert_eq!(left, 0, "a command ends as cleanly: {retried:?}");
    let status = oncebox(copy.path(), &[&["status", "--json"][..], &at[..]].concat());
    let status = String::from_utf8_lossy(&status.stdout).into_owned();
    assert!(status.contains("\"messages\":50") || status.contains("\"messages\": 50"), "{status}");
}
