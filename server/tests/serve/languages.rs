//! The walk-through of `examples/any-language`, with the Python that is there.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::support::{Sidecar, post};

struct Python(Child);

impl Drop for Python {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_receiver_in_python_charges_once() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/any-language/receiver.py");
    let child = Command::new("python3").arg(script).arg("0").stdout(Stdio::piped()).spawn();
    let mut python = Python(child.expect("python3 is installed"));
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
