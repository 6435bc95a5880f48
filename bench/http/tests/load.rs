//! A shorter load: good clients are served despite malicious ones.

use std::process::Command;

// FAULTS S5
#[test]
fn good_clients_are_served_while_others_do_their_worst() {
    let mut load = Command::new(env!("CARGO_BIN_EXE_oncebox-bench-http"));
    let output =
        load.args(["--load", "--clients", "200", "--seconds", "6"]).output().expect("the program runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.ends_with("verdict: good\n"), "{text}");
}
