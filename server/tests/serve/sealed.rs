//! A sealed store: the disk, operators with and without keys, forged messages, and the replacement of keys
//! (FAULTS S19, I8).

use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;

use oncebox_sqlite::rusqlite::Connection;
use tempfile::TempDir;

use super::support::{Receiver, Reply, Sidecar, get, post};

const CANARY: &str = "canary51c7";

/// Returns a configuration with a sealed store. Adds `seal` to its settings and `more` to the handler.
fn config(url: &str, seal: &str, more: &str) -> String {
    format!(
        "allow_private = [\"127.0.0.0/8\"]\n\
         [store.main]\n\
         url = \"sqlite:oncebox.db\"\n\
         [store.main.seal]\n\
         fingerprints = \"file:fingerprints\"\n\
         {seal}\n\
         [api]\n\
         listen = \"127.0.0.1:0\"\n\
         [inbox.orders]\n\
         poll = \"100ms\"\n\
         [inbox.orders.handler.ship]\n\
         url = \"{url}\"\n\
         retry = \"never\"\n\
         {more}\n"
    )
}

const FIRST: &str = "keys = { first = \"file:first\" }";

/// Creates a directory with secrets.
fn secrets() -> Arc<TempDir> {
    let dir = TempDir::new().unwrap();
    std::fs::write(dir.path().join("first"), "Zmlyc3QgZmlyc3QgZmlyc3QgZmlyc3QgZmlyc3QgMTI=\n").unwrap();
    std::fs::write(
        dir.path().join("second"),
        "7365636f6e64207365636f6e64207365636f6e64207365636f6e642031323334",
    )
    .unwrap();
    std::fs::write(dir.path().join("fingerprints"), "cHJpbnRzIHByaW50cyBwcmludHMgcHJpbnRzIDEyMzQ=").unwrap();
    Arc::new(dir)
}

fn start(dir: &Arc<TempDir>, config: &str) -> Sidecar {
    std::fs::write(dir.path().join("oncebox.toml"), config).unwrap();
    Sidecar::start(Arc::clone(dir), &[], &[])
}

fn refusing() -> Receiver {
    Receiver::new(|_| Reply::Status(500, "", format!("no {CANARY}")))
}

/// Runs a command of an operator in the directory of a sidecar.
fn command(dir: &Path, args: &[&str]) -> (String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_oncebox"));
    for name in ["API", "STORE", "CONFIG", "TOKEN", "ACTOR"] {
        command.env_remove(format!("ONCEBOX_{name}"));
    }
    let Output { status, stdout, stderr } = command.current_dir(dir).args(args).output().unwrap();
    let (out, told) = (String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap());
    assert!(status.success(), "{args:?}: {out}{told}");
    (out, told)
}

/// Returns true if a file other than the configuration contains the text.
fn is_on_disk(dir: &Path, text: &str) -> bool {
    let files = std::fs::read_dir(dir).unwrap().map(|file| file.unwrap().path());
    let databases = files.filter(|path| path.to_string_lossy().contains("oncebox.db"));
    let mut all = databases.map(|path| std::fs::read(path).unwrap_or_default());
    all.any(|bytes| bytes.windows(text.len()).any(|part| part == text.as_bytes()))
}

fn poisoned(sidecar: &Sidecar, id: &str) {
    sidecar.wait_words(&["poisoned", id]);
}

#[test]
fn the_disk_has_no_plain_text_and_operators_with_the_key_can_read_it() {
    let (dir, handler) = (secrets(), refusing());
    let sidecar = start(&dir, &config(&handler.url(), FIRST, ""));
    post(&sidecar.url("orders"), "evt_1", "order.placed", &format!("payload {CANARY}"));
    poisoned(&sidecar, "evt_1");
    assert_eq!(handler.requests()[0].body, format!("payload {CANARY}").into_bytes(), "delivered as it came");
    assert!(!is_on_disk(dir.path(), CANARY), "payload and error are sealed");
    assert!(is_on_disk(dir.path(), "order.placed"), "the search finds what is there");

    // The API, with the role.
    let api = format!("{}/api/v1/inboxes/orders/entries?status=poisoned", sidecar.operators());
    assert!(get(&api).body.contains(&format!("no {CANARY}")), "{}", get(&api).body);
    // A command with the configuration and its keys, filtered by the error.
    let list = ["list", "--config", "oncebox.toml", "--status", "poisoned", "--json"];
    let (out, told) = command(dir.path(), &[&list[..], &["--error", CANARY]].concat());
    assert!(out.contains(&format!("no {CANARY}")) && !told.contains("sealed"), "{out}{told}");
    let show = ["show", "--config", "oncebox.toml", "--id", "evt_1", "--source", "orders", "--payload"];
    assert!(command(dir.path(), &show).0.contains(&format!("payload {CANARY}")));
    // A command with only the database.
    let store =
        ["list", "--store", "sqlite:oncebox.db", "--inbox", "orders", "--status", "poisoned", "--json"];
    let (out, _) = command(dir.path(), &store);
    assert!(!out.contains(CANARY) && out.contains("which this process does not have"), "{out}");
    // A command of a user who cannot read the keys.
    std::fs::rename(dir.path().join("first"), dir.path().join("elsewhere")).unwrap();
    let (out, told) = command(dir.path(), &list);
    assert!(!out.contains(CANARY) && out.contains("which this process does not have"), "{out}");
    assert!(told.contains("sealed content is hidden") && told.contains("first"), "{told}");
    sidecar.stop();
}

#[test]
fn forged_messages_in_the_database_are_not_delivered() {
    for change in
        ["type = 'order.refunded'", "source = 'bank'", "payload = CAST('forged' AS BLOB), headers = x''"]
    {
        let (dir, handler) = (secrets(), refusing());
        let sidecar = start(&dir, &config(&handler.url(), FIRST, ""));
        post(&sidecar.url("orders"), "evt_1", "order.placed", "{}");
        poisoned(&sidecar, "evt_1");
        sidecar.stop();
        let connection = Connection::open(dir.path().join("oncebox.db")).unwrap();
        // The poisoned row has its own message.
        let tables = ["oncebox_message", "oncebox_poisoned"]
            .map(|table| connection.execute(&format!("UPDATE {table} SET {change}"), []).unwrap_or_default());
        assert!(tables.iter().sum::<usize>() > 0, "{change}");
        drop(connection);
        let retry = [
            "retry",
            "--actor",
            "ada",
            "--reason",
            "depot is back",
            "--status",
            "poisoned",
            "--handler",
            "ship",
            "--confirm",
        ];
        command(dir.path(), &retry);
        let good = Receiver::good();
        let sidecar = start(&dir, &config(&good.url(), FIRST, ""));
        sidecar.wait_words(&["a stored message cannot be read"]);
        assert_eq!(good.requests().len(), 0, "{change}");
        let api = format!("{}/api/v1/inboxes/orders/entries?status=poisoned", sidecar.operators());
        assert!(get(&api).body.contains("the stored message cannot be read"), "{}", get(&api).body);
        sidecar.stop();
    }
}

#[test]
fn keys_are_replaced_without_a_restart() {
    let (dir, handler) = (secrets(), refusing());
    let sidecar = start(&dir, &config(&handler.url(), FIRST, ""));
    post(&sidecar.url("orders"), "evt_1", "order.placed", "{}");
    poisoned(&sidecar, "evt_1");
    let both = "keys = { first = \"file:first\", second = \"file:second\" }\nactive = \"second\"";
    sidecar.write_config(&config(&handler.url(), both, ""));
    sidecar.signal("HUP");
    sidecar.wait_words(&["configuration reloaded"]);
    post(&sidecar.url("orders"), "evt_2", "order.placed", "{}");
    poisoned(&sidecar, "evt_2");
    let api = format!("{}/api/v1/inboxes/orders/entries?status=poisoned", sidecar.operators());
    assert_eq!(
        get(&api).body.matches(&format!("no {CANARY}")).count(),
        2,
        "both are read: {}",
        get(&api).body
    );
    // With another secret for fingerprints, duplicates would look like conflicts.
    std::fs::write(dir.path().join("fingerprints"), "b3RoZXIgb3RoZXIgb3RoZXIgb3RoZXIgMTIzNDU2Nzg=").unwrap();
    sidecar.signal("HUP");
    sidecar.wait_words(&["old configuration kept", "fingerprints"]);
    // Changes beyond keys need a restart.
    std::fs::write(dir.path().join("fingerprints"), "cHJpbnRzIHByaW50cyBwcmludHMgcHJpbnRzIDEyMzQ=").unwrap();
    sidecar.write_config(&config(&handler.url(), &format!("{both}\nplaintext = \"read\""), ""));
    sidecar.signal("HUP");
    sidecar.wait_words(&["old configuration kept", "needs a restart"]);
    sidecar.stop();
    let connection = Connection::open(dir.path().join("oncebox.db")).unwrap();
    let by = "SELECT CAST(substr(payload, 3, length(?2)) AS TEXT) = ?2 FROM oncebox_message WHERE id = CAST(?1 AS BLOB)";
    for (id, key) in [("evt_1", "first"), ("evt_2", "second")] {
        assert!(
            connection.query_row(by, [id, key], |row| row.get::<_, bool>(0)).unwrap(),
            "{id} is not sealed with {key}"
        );
    }
}
