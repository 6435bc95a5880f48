//! The first steps in any language, with the Python of `examples/any-language`.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use oncebox_servers::Port;

use super::support::{Sidecar, post};

/// The page's commands work in its order: the sidecar first, then the receiver, then the sender.
#[test]
fn the_first_steps_work() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let page = std::fs::read_to_string(root.join("docs/any-language.md")).unwrap();
    let commands: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("$ ")).collect();
    let [serve, receive, send, ..] = commands[..] else { panic!("there are three steps") };
    let readme = std::fs::read_to_string(root.join("README.md")).unwrap();
    let quick_start: Vec<&str> = readme.lines().filter_map(|line| line.strip_prefix("$ ")).collect();
    assert_eq!(quick_start[1..], [serve, receive], "the front page begins in the same way");
    // Ports of this test instead of those that a reader has free.
    let reserved = Port::free().unwrap();
    let port = reserved.number().to_string();
    let serve = serve.strip_prefix("cargo run --release -- serve ").unwrap().replace("9000", &port);
    let sidecar = Sidecar::quick(&serve.split(' ').collect::<Vec<_>>());
    let shell = |command: &str| {
        let mut shell = Command::new("sh");
        shell
            .args(["-c", &format!("exec {command}")])
            .current_dir(&root)
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        shell.spawn().unwrap()
    };
    let mut receiver = PythonProcess(shell(&receive.replace("9000", &port)));
    let mut lines = BufReader::new(receiver.0.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert_eq!(lines.next().unwrap(), format!("listening on {port}"));
    let send = send.replace("http://127.0.0.1:8471", &sidecar.base);
    for expected in ["202 Accepted", "200 OK"] {
        let output = shell(&send).wait_with_output().unwrap();
        let answer = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(answer.starts_with(&format!("HTTP/1.1 {expected}")), "{answer}");
    }
    assert!(lines.next().unwrap().starts_with("charged order 7 with key "));
    sidecar.wait_words(&["delivered", "order.placed evt_1 to handler"]);
    sidecar.stop();
}

struct PythonProcess(Child);

impl Drop for PythonProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_receiver_in_python_charges_once() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/any-language/receiver.py");
    let child = Command::new("python3").arg(script).arg("0").stdout(Stdio::piped()).spawn();
    let mut python = PythonProcess(child.expect("python3 is installed"));
    let mut lines = BufReader::new(python.0.stdout.take().unwrap()).lines().map_while(Result::ok);
    let port = lines.next().unwrap().replace("listening on ", "");
    let sidecar = Sidecar::quick(&["--to", &format!("http://127.0.0.1:{port}/charge")]);
    for expected in [202, 200, 200] {
        assert_eq!(
            post(&sidecar.url("messages"), "evt_1", "order.placed", r#"{"order":7}"#).status,
            expected
        );
    }
    post(&sidecar.url("messages"), "evt_2", "order.placed", r#"{"order":8}"#);
    sidecar.wait_count("delivered", 2);
    sidecar.stop();
    drop(python);
    let charged: Vec<String> = lines.collect();
    let mut orders: Vec<&str> = charged.iter().filter_map(|line| line.split(" with key ").next()).collect();
    orders.sort_unstable();
    assert_eq!(orders, ["charged order 7", "charged order 8"]);
    assert!(
        charged.iter().all(|line| line.rsplit(' ').next().is_some_and(|key| key.len() == 40)),
        "{charged:?}"
    );
}
