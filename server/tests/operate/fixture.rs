//! A store with messages, and the binary to operate it.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::Duration;

use oncebox::state::{ErrorText, Outcome, Status};
use oncebox::store::{Admin as _, ClaimParams, ClaimQuota, Claimed, NewMessage, Route, Store as _};
use oncebox::{
    BoxError, Context, HandlerKey, Inbox, InboxName, KeyStrategy, Message, Policy, Reject, handler,
};
use oncebox_sqlite::Sqlite;
use serde_json::Value;

/// Time limit of every wait, long enough for a loaded machine.
pub(crate) const PATIENCE: Duration = Duration::from_mins(3);

/// Actor and reason of actions.
pub(crate) const ADA: [&str; 4] = ["--actor", "ada", "--reason", "depot is back"];

/// Returns the binary, without environment variables that affect it.
pub(crate) fn oncebox<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_oncebox"));
    for name in ["API", "STORE", "CONFIG", "TOKEN", "ACTOR"] {
        command.env_remove(format!("ONCEBOX_{name}"));
    }
    command.args(args);
    command
}

pub(crate) fn inbox() -> InboxName {
    InboxName::new("orders").expect("a good name")
}

async fn ship(message: Message, _: &mut Context<Sqlite>) -> Result<(), BoxError> {
    match message.payload().first() {
        Some(b'!') => Err(Reject("connection refused: 50% of the depot".into()).into()),
        _ => Ok(()),
    }
}

/// An inbox in a SQLite file.
pub(crate) struct OperateFixture {
    pub(crate) dir: tempfile::TempDir,
}

impl OperateFixture {
    /// Creates a file with empty tables.
    pub(crate) fn empty() -> Self {
        let fixture = Self { dir: tempfile::tempdir().expect("a temporary directory") };
        fixture.store();
        fixture
    }

    /// Stores three poisoned entries, a completed one and a conflict.
    pub(crate) async fn new() -> Self {
        let fixture = Self::empty();
        let inbox =
            Inbox::builder("orders", fixture.store()).on("order.placed", handler("ship-order", ship)).build();
        let inbox = inbox.expect("an inbox");
        for (id, payload) in
            [("evt_1", "!"), ("evt_\u{1b}[31m2", "!"), ("evt_3", "!"), ("evt_4", "ok"), ("evt_4", "?")]
        {
            let message = Message::new(id, "order.placed", payload).with_source("shop").with_header("x", "y");
            inbox.accept(message).await.expect("accept");
        }
        inbox.drain().await.expect("drain");
        fixture
    }

    /// Stores one message that is not handled yet.
    pub(crate) async fn accept(&self, id: &'static str, source: &str) {
        let inbox =
            Inbox::builder("orders", self.store()).on("order.placed", handler("ship-order", ship)).build();
        let message = Message::new(id, "order.placed", "ok").with_source(source);
        inbox.expect("an inbox").accept(message).await.expect("accept");
    }

    /// Stores messages with one ordering key. The first is poisoned.
    pub(crate) async fn in_line(ids: &[&str]) -> Self {
        let fixture = Self::empty();
        let inbox =
            Inbox::builder("orders", fixture.store()).on("order.placed", handler("ship-order", ship)).build();
        let inbox = inbox.expect("an inbox");
        for id in ids {
            let message = Message::new((*id).to_owned(), "order.placed", "!").with_source("shop");
            inbox.accept(message.with_ordering_key("customer-7")).await.expect("accept");
        }
        inbox.drain().await.expect("drain");
        fixture
    }

    /// Stores entries and settles them with an outcome.
    pub(crate) async fn with(count: usize, outcome: fn() -> Outcome) -> Self {
        let fixture = Self::empty();
        let store = fixture.store();
        let offer = |id: usize| {
            let message = Message::new(id.to_string(), "order.placed", "{}").with_source("shop");
            let key = KeyStrategy::MessageId.key(&inbox(), &message).expect("a key");
            NewMessage::new(inbox(), key, message.into(), [route()].into())
        };
        store.accept(&(0..count).map(offer).collect::<Vec<_>>()).await.expect("accept");
        assert_eq!(work(&store, outcome).await, count);
        fixture
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.dir.path().join("inbox.db")
    }

    pub(crate) fn url(&self) -> String {
        format!("sqlite:{}", self.file().display())
    }

    pub(crate) fn store(&self) -> Sqlite {
        Sqlite::open(self.file()).expect("the file opens")
    }

    pub(crate) fn command(&self, command: &str, args: &[&str]) -> Command {
        let mut all = oncebox([command, "--store", &self.url(), "--inbox", "orders"]);
        all.args(args);
        all
    }

    pub(crate) fn run(&self, command: &str, args: &[&str]) -> Output {
        self.command(command, args).output().expect("the binary runs")
    }

    /// Runs a command that must succeed, and returns its lines.
    pub(crate) fn json(&self, command: &str, args: &[&str]) -> Vec<Value> {
        lines(&self.run(command, &[args, &["--json"]].concat()))
    }

    pub(crate) fn code(&self, command: &str, args: &[&str]) -> i32 {
        code(&self.run(command, args))
    }

    /// Counts the entries with a status.
    pub(crate) async fn count(&self, status: Status) -> u64 {
        self.store().count(&inbox()).await.expect("count").with_status(status)
    }
}

pub(crate) fn route() -> Route {
    Route::new(HandlerKey::new("ship-order").expect("a good name"))
}

pub(crate) fn refused() -> Outcome {
    Outcome::Reject { error: ErrorText::new("connection refused") }
}

/// Settles all due entries and returns their number.
pub(crate) async fn work(store: &Sqlite, outcome: fn() -> Outcome) -> usize {
    let want = ClaimQuota { route: route(), limit: 10_000 };
    let claimed = store.claim(&ClaimParams::new(inbox(), vec![want], PATIENCE)).await.expect("claim");
    let settle = |one: &Claimed| one.claim.settle(&Policy::default(), outcome());
    store.settle(&claimed.iter().map(settle).collect::<Vec<_>>()).await.expect("settle");
    claimed.len()
}

pub(crate) fn code(output: &Output) -> i32 {
    output.status.code().expect("it ends by itself")
}

pub(crate) fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub(crate) fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Returns the lines of a command that must have succeeded.
pub(crate) fn lines(output: &Output) -> Vec<Value> {
    assert!(output.status.success(), "{output:?}");
    text(output).lines().map(|line| serde_json::from_str(line).expect("an object on a line")).collect()
}
