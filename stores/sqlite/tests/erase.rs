//! Erasing a message leaves nothing of it in the file.

mod support;

use oncebox::state::{ErrorText, Operation, Outcome};
use oncebox::store::{NewMessage, Store as _};
use oncebox::{Message, Policy};
use oncebox_testkit::OperatorSteps as _;
use support::{TestFile, claim_one, handler, inbox, key, offer};

const NEEDLES: [&str; 3] = ["the-name-of-ada", "the-street-of-ada", "the-card-of-ada"];

/// Returns the needles that a file holds.
fn holds(path: &std::path::Path) -> Vec<&'static str> {
    let bytes = std::fs::read(path).unwrap_or_default();
    let found = |needle: &&str| bytes.windows(needle.len()).any(|part| part == needle.as_bytes());
    NEEDLES.into_iter().filter(found).collect()
}

// FAULTS S12
#[tokio::test]
async fn nothing_of_an_erased_message_is_left_in_the_file() {
    let file = TestFile::new();
    let store = file.open();
    let mut new: NewMessage = offer("1");
    // Longer than a page, so that it takes its own pages.
    let payload = format!("{} {}", NEEDLES[0], "x".repeat(20_000) + NEEDLES[0]);
    let message =
        Message::new("1", "t", payload).with_source(new.message.source()).with_header("street", NEEDLES[1]);
    new.message = std::sync::Arc::new(message);
    store.accept(&[new]).await.expect("accept");
    let claimed = claim_one(&store).await;
    let failed = Outcome::Reject { error: ErrorText::new(NEEDLES[2]) };
    store.settle(&[claimed.claim.settle(&Policy::default(), failed)]).await.expect("settle");
    store.operate(&inbox(), &key("1"), &handler("h"), Operation::Discard).await.expect("discard");
    let fold = || {
        let checkpoint = "PRAGMA wal_checkpoint(TRUNCATE)";
        file.connect().query_row(checkpoint, [], |row| row.get::<_, i64>(0)).expect("a checkpoint")
    };
    assert_eq!(fold(), 0, "no reader keeps the log");
    assert_eq!(holds(&file.path()), NEEDLES, "it was there");
    store.erase(&inbox(), &key("1"), false).await.expect("erase");
    assert_eq!(fold(), 0, "no reader keeps the log");
    assert_eq!(holds(&file.path()), [""; 0]);
    let mut log = file.path().into_os_string();
    log.push("-wal");
    assert_eq!(holds(log.as_ref()), [""; 0]);
    file.check();
}
