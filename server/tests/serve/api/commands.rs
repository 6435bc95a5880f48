//! The commands of operators through the API: same output, same exit codes.

use std::process::{Command, Output};

use serde_json::{Value, json};

use oncebox_servers::Port;

use super::super::support::{Receiver, Sidecar, post};
use super::{Depot, config, failing, fresh, poison, token};

const ADA: [&str; 4] = ["--actor", "ada", "--reason", "depot is back"];

/// An operator without access to the database.
struct Far {
    api: String,
    token: Option<String>,
}

impl Far {
    fn new(sidecar: &Sidecar, token: Option<&str>) -> Self {
        Self { api: sidecar.operators(), token: token.map(ToOwned::to_owned) }
    }

    fn run(&self, command: &str, args: &[&str]) -> Output {
        let mut run = Command::new(env!("CARGO_BIN_EXE_oncebox"));
        for name in ["API", "STORE", "CONFIG", "TOKEN", "ACTOR"] {
            run.env_remove(format!("ONCEBOX_{name}"));
        }
        run.envs(self.token.as_ref().map(|token| ("ONCEBOX_TOKEN", token)));
        run.args([command, "--api", &self.api, "--inbox", "orders"])
            .args(args)
            .output()
            .expect("the binary runs")
    }

    fn json(&self, command: &str, args: &[&str]) -> Vec<Value> {
        let output = self.run(command, &[args, &["--json"]].concat());
        assert!(output.status.success(), "{command} {args:?}: {output:?}");
        let text = String::from_utf8_lossy(&output.stdout);
        text.lines().map(|line| serde_json::from_str(line).expect("an object on a line")).collect()
    }

    /// Returns the exit code of a command that must fail with an error.
    fn refused(&self, command: &str, args: &[&str]) -> i32 {
        let output = self.run(command, args);
        assert!(
            String::from_utf8_lossy(&output.stderr).starts_with("oncebox: ") || !output.stderr.is_empty(),
            "{output:?}"
        );
        output.status.code().expect("it ends by itself")
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn stuck_messages_are_found_and_fixed_through_the_api() {
    let depot = Depot::closed();
    let sidecar = failing(&depot, "");
    poison(&sidecar, &["evt_1", "evt_2", "evt_3"]);
    let far = Far::new(&sidecar, None);
    assert_eq!(far.json("status", &[])[0]["messages"], 3);
    let listed =
        far.json("list", &["--status", "poisoned", "--status", "pending", "--error", "50%", "--limit", "2"]);
    let (key, next) =
        (listed[0]["key"].as_str().expect("a key"), listed[2]["next"].as_str().expect("a cursor"));
    assert_eq!(far.json("list", &["--status", "poisoned", "--after", next]).len(), 2);
    let shown = &far.json("show", &["--key", key, "--payload"])[0];
    assert_eq!(shown["payloads"]["stored"]["text"], json!("{\"card\":\"***\",\"order\":7}"), "{shown}");
    assert_eq!(shown["attempts"].as_array().map(Vec::len), Some(1), "{shown}");
    let told = far.run("explain", &["--key", key]);
    assert!(String::from_utf8_lossy(&told.stdout).contains("waits for a person"), "{told:?}");
    assert_eq!(far.json("doctor", &[]).iter().filter(|finding| finding["code"] == "poisoned").count(), 1);
    assert_eq!(far.json("quarantine", &["--reason", "conflict"]), [json!({ "next": null })]);
    assert_eq!(far.json("blocked", &[]), Vec::<Value>::new());
    let id = fresh();
    let retry = [&ADA[..], &["--key", key, "--handler", "ship", "--operation", &id]].concat();
    depot.mend();
    assert_eq!(far.json("retry", &retry)[0]["repeated"], false);
    sidecar.wait_count("delivered", 1);
    let again = &far.json("retry", &retry)[0];
    assert_eq!((&again["repeated"], &again["entry"]["status"]), (&json!(true), &json!("pending")), "{again}");
    let many = [&ADA[..], &["--error", "50%"]].concat();
    assert_eq!(far.json("retry", &many)[0]["count"], 2, "shown first");
    assert_eq!(far.refused("retry", &[&many[..], &["--confirm", "--expect", "1"]].concat()), 5);
    let report = &far.json("retry", &[&many[..], &["--confirm", "--expect", "2"]].concat())[0];
    assert_eq!((&report["state"], &report["done"]), (&json!("finished"), &json!(2)), "{report}");
    sidecar.wait_count("delivered", 3);
    far.json("pause", &[&ADA[..], &["--handler", "ship"]].concat());
    assert_eq!(far.json("status", &[])[0]["paused"], json!(["ship"]));
    far.json("resume", &[&ADA[..], &["--handler", "ship"]].concat());
    let audit = far.json("audit", &["--by", "ada"]);
    assert_eq!(audit.len(), 7, "one, many and its two parts, pause, resume, and where to go on: {audit:?}");
    let replay = [&ADA[..], &["--key", key, "--handler", "ship"]].concat();
    assert_eq!(far.json("replay", &replay)[0]["entry"]["generation"], 1);
}

#[test]
fn commands_report_refusals_of_the_api() {
    let depot = Depot::closed();
    let (ada, ada_table) = token("ada", &["operator"]);
    let (eve, eve_table) = token("eve", &["viewer"]);
    let sidecar = failing(&depot, &format!("{ada_table}{eve_table}"));
    poison(&sidecar, &["evt_1"]);
    let key = Far::new(&sidecar, Some(&ada)).json("list", &[])[0]["key"].as_str().expect("a key").to_owned();
    let anonymous = Far::new(&sidecar, None);
    assert_eq!(anonymous.refused("status", &[]), 5);
    assert!(
        said(&anonymous.run("status", &[])).contains("send a token"),
        "{:?}",
        anonymous.run("status", &[])
    );
    let eve = Far::new(&sidecar, Some(&eve));
    assert_eq!(eve.json("status", &[])[0]["messages"], 1);
    let retry = ["--reason", "x", "--key", &key, "--handler", "ship"];
    assert_eq!(eve.refused("retry", &retry), 5, "a viewer must not act");
    assert_eq!(eve.refused("show", &["--key", &key, "--payload"]), 5, "nor read payloads");
    let ada = Far::new(&sidecar, Some(&ada));
    assert_eq!(ada.json("retry", &retry)[0]["repeated"], false, "the token says who it is");
    assert_eq!(ada.json("audit", &[])[0]["actor"], "ada");
    assert_eq!(ada.refused("retry", &["--reason", "x", "--key", &key, "--handler", "unknown"]), 5);
    assert_eq!(ada.refused("list", &["--after", "here"]), 2);
    assert_eq!(ada.refused("doctor", &["--handlers", "ship"]), 2, "it knows them");
    assert_eq!(
        ada.refused("purge", &["--reason", "x", "--older-than", "0s", "--confirm"]),
        5,
        "not an admin"
    );
    let nothing = Port::free().unwrap();
    let elsewhere = Far { api: format!("http://127.0.0.1:{}", nothing.number()), token: None };
    assert_eq!(elsewhere.refused("status", &[]), 3);
    assert!(said(&elsewhere.run("status", &[])).contains("check that `oncebox serve` runs there"));
    for api in ["localhost", "ftp://x", "http://u:canary@127.0.0.1"] {
        let wrong = Far { api: api.into(), token: None }.run("status", &[]);
        assert_eq!(wrong.status.code(), Some(2), "{wrong:?}");
        assert!(!said(&wrong).contains("canary"), "{wrong:?}");
    }
    let other = Far { api: Receiver::good().url(), token: None }.run("status", &[]);
    assert_eq!(other.status.code(), Some(4), "a server that is something else: {other:?}");
    let named = ada.run("status", &["--token", "obx_canary"]);
    assert!(named.status.code() == Some(2) && !said(&named).contains("canary"), "{named:?}");
}

// FAULTS A4: a lost response to a read has no unknown outcome; a lost response to an action does.
#[test]
fn a_missing_response_is_reported() {
    let server = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let far = Far { api: format!("http://{}", server.local_addr().expect("its address")), token: None };
    // Reads each request, then closes the connection.
    std::thread::spawn(move || {
        for mut stream in server.incoming().map_while(Result::ok) {
            let _ = std::io::Read::read(&mut stream, &mut [0; 8 << 10]);
        }
    });
    let many = [&ADA[..], &["--error", "x"]].concat();
    for (command, args) in
        [("status", &[][..]), ("discard", &many), ("purge", &["--older-than", "1s", "--reason", "x"])]
    {
        let lost = far.run(command, args);
        assert_eq!(lost.status.code(), Some(4), "{lost:?}");
        assert!(
            said(&lost).contains("retry") && !said(&lost).contains("may have been stored"),
            "{command}: {lost:?}"
        );
    }
    let lost = far.run("pause", &[&ADA[..], &["--handler", "ship"]].concat());
    assert!(said(&lost).contains("the change may have been stored"), "{lost:?}");
}

// FAULTS J1: repeating the command continues the operation, whatever the count is now.
#[test]
fn the_same_command_continues_through_the_api() {
    let depot = Depot::closed();
    let sidecar = failing(&depot, "");
    poison(&sidecar, &["evt_1", "evt_2", "evt_3"]);
    let far = Far::new(&sidecar, None);
    let id = fresh();
    let many = [&ADA[..], &["--error", "50%", "--confirm", "--operation", &id]].concat();
    // The second count is zero.
    for _ in 0..2 {
        let report = &far.json("discard", &many)[0];
        assert_eq!((&report["state"], &report["done"]), (&json!("finished"), &json!(3)), "{report}");
    }
}

#[test]
fn purge_and_backfill_work_through_the_api() {
    let depot = Depot::closed();
    depot.mend();
    let (root, table) = token("root", &["admin"]);
    let late = Receiver::good();
    let more = format!(
        "{}[inbox.orders.handler.bill]\nurl = \"{}\"\ntypes = [\"other\"]\n",
        config(&depot.handler.url(), &table),
        late.url()
    );
    let sidecar = Sidecar::with(&more);
    let far = Far::new(&sidecar, Some(&root));
    for body in ["{}", r#"{"other":1}"#] {
        post(&sidecar.url("orders"), "evt_1", "t", body);
    }
    let purge = ["--reason", "settled", "--older-than", "0s"];
    assert_eq!(far.json("purge", &purge)[0]["count"], 1);
    assert_eq!(far.json("purge", &[&purge[..], &["--confirm"]].concat())[0]["purged"], 1);
    assert_eq!(far.json("status", &[])[0]["quarantined"], 0);
    let backfill = ["--reason", "it is new", "--handler", "bill", "--confirm"];
    let report = &far.json("backfill", &backfill)[0];
    assert_eq!((&report["state"], &report["done"]), (&json!("finished"), &json!(0)), "{report}");
    assert_eq!(far.refused("backfill", &[&backfill[..], &["--type", "t"]].concat()), 2);
    assert_eq!(far.refused("backfill", &["--reason", "x", "--handler", "unknown", "--confirm"]), 5);
}
