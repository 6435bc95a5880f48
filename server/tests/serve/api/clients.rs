//! The same requests on a store and through the API: the same answers.

use std::process::{Command, Output};
use std::sync::Arc;

use oncebox_servers::{Cluster, PostgresVersion};
use serde_json::Value;

use super::super::support::{Sidecar, post, request};
use super::{Depot, fresh, poison};

const ADA: [&str; 4] = ["--actor", "ada", "--reason", "depot is back"];

/// A sidecar whose store is reachable too.
struct BothClients {
    sidecar: Sidecar,
    env: Vec<(&'static str, String)>,
}

impl BothClients {
    fn run(&self, through_api: bool, args: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_oncebox"));
        for name in ["API", "STORE", "CONFIG", "TOKEN", "ACTOR"] {
            command.env_remove(format!("ONCEBOX_{name}"));
        }
        command.current_dir(self.sidecar.dir.path()).envs(self.env.iter().cloned()).args(args);
        if through_api {
            command.args(["--api", &self.sidecar.operators()]);
        } else {
            command.args(["--config", "oncebox.toml"]);
        }
        command.args(["--inbox", "orders"]).output().expect("the binary runs")
    }

    fn json(&self, through_api: bool, args: &[&str]) -> Vec<Value> {
        let output = self.run(through_api, &[args, &["--json"]].concat());
        // 1: the doctor found a danger.
        assert!(matches!(output.status.code(), Some(0 | 1)), "{args:?}: {output:?}");
        let text = String::from_utf8_lossy(&output.stdout);
        text.lines().map(|line| serde_json::from_str(line).expect("an object on a line")).collect()
    }

    /// Runs a command that only reads with both clients.
    fn read(&self, args: &[&str]) -> Vec<Value> {
        let [mut near, mut far] = [false, true].map(|through_api| self.json(through_api, args));
        // Ages grow between two requests.
        for line in near.iter_mut().chain(&mut far) {
            if let Some(blocked) = line.get_mut("blocked").and_then(Value::as_array_mut) {
                for one in blocked {
                    one["oldest_seconds"] = Value::Null;
                }
            }
            if line.get("code").is_some_and(|code| code == "blocked") {
                line["what"] = Value::Null;
            }
        }
        assert_eq!(near, far, "{args:?}");
        near
    }

    /// Runs a command that changes data with one client, then repeats it with the other one.
    fn change(&self, api_first: bool, args: &[&str]) -> Value {
        let id = fresh();
        let args = [args, &ADA, &["--operation", &id]].concat();
        let [mut first, mut repeated] =
            [api_first, !api_first].map(|through_api| self.json(through_api, &args));
        for answer in [&mut first, &mut repeated] {
            assert_eq!(answer.len(), 1, "{args:?}: {answer:?}");
            // True only while the serving process runs it.
            answer[0].as_object_mut().expect("an object").remove("active");
        }
        if let (Some(first), Some(repeated)) = (first[0].get_mut("repeated"), repeated[0].get_mut("repeated"))
        {
            assert_eq!((first.take(), repeated.take()), (false.into(), true.into()), "{args:?}");
        }
        assert_eq!(first, repeated, "{args:?}");
        first.remove(0)
    }

    /// Runs a command that must fail with both clients; returns its exit code and the first part of the error.
    fn refused(&self, args: &[&str]) -> (i32, String) {
        let [near, far] = [false, true].map(|through_api| {
            let output = self.run(through_api, args);
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            let error = said.lines().find_map(|line| line.strip_prefix("oncebox: ")).expect("an error");
            // Each interface has its own text for the kept data and the advice.
            let what = [": nothing was", ": this request", "; "]
                .iter()
                .fold(error, |what, end| what.split(end).next().unwrap_or_default());
            (output.status.code().expect("it ends by itself"), what.to_owned())
        });
        assert_eq!(near, far, "{args:?}");
        near
    }

    /// Compares the answers of all commands that only read.
    fn read_all(&self, keys: &[String]) {
        for args in [
            &["status"][..],
            &["status", "--tenant", "acme"],
            &["list"],
            &["list", "--status", "poisoned", "--error", "50%", "--limit", "2"],
            &["list", "--type", "order.*", "--source", "orders", "--since", "2026-01-31"],
            &["quarantine"],
            &["quarantine", "--reason", "stale"],
            &["blocked"],
            &["audit"],
            &["audit", "--by", "ada", "--limit", "2"],
            &["doctor"],
            &["discard", "--reason", "x", "--error", "50%"],
            &["replay", "--reason", "x", "--everything", "--limit", "1"],
            &["purge", "--reason", "x", "--older-than", "0s"],
            &["purge", "--reason", "x", "--older-than", "1day", "--limit", "1"],
            &["backfill", "--reason", "x", "--handler", "late"],
        ] {
            self.read(args);
        }
        for key in keys {
            self.read(&["show", "--key", key]);
            self.read(&["show", "--key", key, "--payload"]);
            self.read(&["explain", "--key", key]);
            self.read(&["audit", "--key", key]);
            self.read(&["erase", "--reason", "x", "--key", key]);
        }
    }
}

fn answers_are_the_same(store: &str, env: &[(&'static str, String)]) {
    let depot = Depot::closed();
    let handler = |key: &str, more: &str| {
        format!("[inbox.orders.handler.{key}]\nurl = \"{}\"\nretry = \"never\"\n{more}", depot.handler.url())
    };
    let config = format!(
        "allow_private = [\"127.0.0.0/8\"]\n[store.main]\nurl = \"{store}\"\n[api]\nlisten = \"127.0.0.1:0\"\n\
         [inbox.orders]\npoll = \"100ms\"\n{}",
        handler("ship", "legacy = [\"shipping\"]\n")
    );
    let dir = Arc::new(tempfile::tempdir().unwrap());
    let file = dir.path().join("oncebox.toml");
    std::fs::write(&file, &config).unwrap();
    let vars: Vec<(&str, &str)> = env.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let sidecar = Sidecar::start(Arc::clone(&dir), &[], &vars);
    poison(&sidecar, &["evt_1", "evt_2", "evt_3", "evt_4"]);
    for body in ["{}", r#"{"other":1}"#] {
        post(&sidecar.url("orders"), "evt_1", "order.placed", body);
    }
    for id in ["head", "tail"] {
        let headers = [("message-id", id), ("message-type", "t"), ("message-ordering-key", "k")];
        request("POST", &sidecar.url("orders"), &headers, b"{}").unwrap();
    }
    sidecar.wait_words(&["poisoned", "head"]);
    sidecar.stop();
    // A handler that is new.
    std::fs::write(&file, config + &handler("late", "types = [\"order.*\"]\n")).unwrap();
    let both = BothClients { sidecar: Sidecar::start(dir, &[], &vars), env: env.to_vec() };
    let listed = both.read(&["list", "--type", "order.placed"]);
    let keys: Vec<String> = listed.iter().filter_map(|one| one["key"].as_str().map(Into::into)).collect();
    assert_eq!(keys.len(), 4, "{listed:?}");
    both.read_all(&keys[..2]);

    let id = fresh();
    let (of, nothing) = (["--key", &keys[1], "--handler", "ship"], "0".repeat(64));
    let acted = |args: &[&str]| both.refused(&[args, &ADA, &["--operation", &id]].concat()).0;
    assert_eq!(both.refused(&["show", "--key", &nothing]).0, 5);
    assert_eq!(both.refused(&["explain", "--key", &nothing]).0, 5);
    assert_eq!(acted(&["replay", "--key", &keys[1], "--handler", "ship"]), 5, "it is not finished");
    assert_eq!(acted(&["retry", "--key", &keys[1], "--handler", "other"]), 5);
    assert_eq!(acted(&["pause", "--handler", "shp"]), 5);
    assert_eq!(acted(&["discard", "--error", "50%", "--confirm", "--expect", "99"]), 5);
    assert_eq!(acted(&["purge", "--older-than", "0s", "--confirm", "--expect", "99"]), 5);
    assert_eq!(acted(&["erase", "--key", &keys[1], "--confirm"]), 5, "it is poisoned");
    assert_eq!(acted(&["backfill", "--handler", "other", "--confirm"]), 5);
    assert_eq!(acted(&["retry", "--error", "x", "--status", "completed"]), 2);
    let no_actor = both.refused(&["pause", "--handler", "ship", "--reason", "x", "--operation", &id]);
    assert_eq!(no_actor.0, 2, "{no_actor:?}");

    for (at, args) in [
        &["pause", "--handler", "ship"][..],
        &["pause", "--handler", "late"],
        &["pause", "--handler", "ship", "--ordering-key", "k", "--source", "orders"],
        &["retry", "--key", &keys[0], "--handler", "ship"],
        &["discard", "--key", &keys[1], "--handler", "ship"],
        &["resume", "--handler", "ship", "--ordering-key", "k", "--source", "orders"],
        &["pause", "--handler", "unborn", "--unknown"],
        &["erase", "--key", &keys[1], "--discard-unfinished", "--confirm"],
    ]
    .iter()
    .enumerate()
    {
        both.change(at % 2 == 0, args);
    }
    both.read_all(&keys[..2]);
    let discard = ["discard", "--error", "50%", "--type", "order.placed", "--confirm"];
    let report = both.change(true, &[&discard[..], &["--limit", "1"]].concat());
    assert_eq!((&report["state"], &report["done"]), (&"capped".into(), &1.into()), "{report}");
    let report = both.change(false, &discard);
    assert_eq!((&report["state"], &report["done"]), (&"finished".into(), &1.into()), "{report}");
    assert_eq!(both.change(true, &["purge", "--older-than", "0s", "--limit", "1", "--confirm"])["purged"], 1);
    assert_eq!(both.change(false, &["purge", "--older-than", "0s", "--confirm"])["purged"], 1);
    let report = both.change(true, &["backfill", "--handler", "late", "--confirm"]);
    assert_eq!((&report["state"], &report["done"]), (&"finished".into(), &3.into()), "{report}");
    let report = both.change(false, &["backfill", "--handler", "late", "--confirm"]);
    assert_eq!((&report["state"], &report["done"]), (&"finished".into(), &0.into()), "{report}");
    assert_eq!(
        both.change(false, &[&["unblock"], &of[2..], &["--key", &head(&both)]].concat())["repeated"],
        Value::Null
    );
    both.read_all(&keys);
}

/// Returns the key of the message that blocks the others.
fn head(both: &BothClients) -> String {
    both.read(&["blocked"])[0]["head_key"].as_str().expect("a key").to_owned()
}

#[test]
fn both_clients_answer_alike_on_sqlite() {
    answers_are_the_same("sqlite:inbox.db", &[]);
}

#[test]
fn both_clients_answer_alike_on_postgresql() {
    let cluster = Cluster::start(PostgresVersion::Debian).unwrap();
    cluster.create_database("orders").unwrap();
    answers_are_the_same("env:DATABASE_URL", &[("DATABASE_URL", cluster.url("orders"))]);
}
