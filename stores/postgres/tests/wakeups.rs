//! Wake-ups between processes: a process with new work notifies the others, seldom and without delaying an accept.

mod support;

use std::time::{Duration, Instant};

use oncebox::state::{Outcome, Policy};
use oncebox::store::{SettleIn as _, Settled, Store as _, Transactional as _, Wakeup};
use oncebox::{Config, Context, Inbox, Message, handler};
use oncebox_postgres::Postgres;
use oncebox_postgres::sqlx::postgres::PgListener;
use support::{Schema, claim_one, first, in_time, offer_ordered};

fn subscribe(store: &Postgres) -> Wakeup {
    store.wakeups().expect("it has some").subscribe()
}

/// Returns SQL that selects the listeners on the channel of a schema.
fn listeners(schema: &Schema) -> String {
    format!(
        "FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN \"{}.oncebox_work\"%'",
        schema.name
    )
}

/// Subscribes, and waits until the listening session exists. From then on no notification is missed.
async fn listening(schema: &Schema, store: &Postgres) -> Wakeup {
    let mut wakeup = subscribe(store);
    schema.wait_for(&format!("EXISTS (SELECT 1 {})", listeners(schema))).await;
    // The start of the listener is a wake-up, too.
    in_time(wakeup.woken()).await;
    wakeup
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_process_hears_of_work_that_the_first_accepted() {
    for schema in [Schema::shared(), Schema::new(oncebox_servers::shared::newest_url())] {
        let (one, two) =
            (schema.options().open().await.expect("one"), schema.options().open().await.expect("two"));
        let mut wakeup = listening(&schema, &two).await;
        first(&one, "1").await;
        in_time(wakeup.woken()).await;
        let claimed = claim_one(&two).await;
        // Other processes may claim a released entry, too.
        let back = claimed.claim.settle(&Policy::default(), Outcome::Released);
        let mut other = listening_again(&schema, &one).await;
        two.settle(&[back]).await.expect("settle");
        in_time(other.woken()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_process_hears_of_what_a_handlers_transaction_let_go() {
    let schema = Schema::shared();
    let (one, two) =
        (schema.options().open().await.expect("one"), schema.options().open().await.expect("two"));
    let mut wakeup = listening(&schema, &two).await;
    one.accept(&[offer_ordered("1", "k"), offer_ordered("2", "k")]).await.expect("accept");
    in_time(wakeup.woken()).await;
    let head = claim_one(&one).await;
    let mut tx = one.begin().await.expect("begin");
    assert_eq!(one.complete(&mut tx, &head.claim).await.expect("complete"), Settled::Applied);
    one.commit(tx).await.expect("commit");
    in_time(wakeup.woken()).await;
    assert_eq!(claim_one(&two).await.message.id(), b"2");
}

async fn listening_again(schema: &Schema, store: &Postgres) -> Wakeup {
    let mut wakeup = subscribe(store);
    schema.wait_for(&format!("(SELECT count(*) {}) = 2", listeners(schema))).await;
    in_time(wakeup.woken()).await;
    wakeup
}

// FAULTS E14
#[tokio::test(flavor = "multi_thread")]
async fn a_listening_session_that_was_ended_listens_again() {
    let schema = Schema::shared();
    let (one, two) =
        (schema.options().open().await.expect("one"), schema.options().open().await.expect("two"));
    let mut wakeup = listening(&schema, &two).await;
    let session = schema.number(&format!("SELECT pid::bigint {}", listeners(&schema))).await;
    schema.run(&format!("SELECT pg_terminate_backend({session})")).await;
    schema.wait_for(&format!("EXISTS (SELECT 1 {} AND pid <> {session})", listeners(&schema))).await;
    // The listener missed notifications meanwhile, so there may be work.
    in_time(wakeup.woken()).await;
    first(&one, "1").await;
    in_time(wakeup.woken()).await;
    claim_one(&two).await;
}

type DoneSender = tokio::sync::mpsc::UnboundedSender<Vec<u8>>;

async fn work(
    message: Message,
    cx: &mut Context<Postgres>,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    cx.data::<DoneSender>()?.send(message.id().to_vec())?;
    Ok(())
}

// FAULTS E9, E14
#[tokio::test(flavor = "multi_thread")]
async fn behind_a_pooler_work_is_found_by_asking() {
    let schema = Schema::pooled();
    let (one, two) = (schema.shop().await, schema.options().open().await.expect("two"));
    let (done, mut runs) = tokio::sync::mpsc::unbounded_channel::<Vec<u8>>();
    let config = Config { poll: Duration::from_millis(50), ..Config::default() };
    let builder =
        Inbox::builder("orders", two).on("order.placed", handler("h", work)).data(done).config(config);
    let inbox = builder.build().expect("an inbox");
    let running = inbox.start();
    in_time(running.idle()).await;
    first(&one, "1").await;
    assert_eq!(in_time(runs.recv()).await.expect("it runs"), b"1");
    in_time(running.shutdown()).await;
    assert_eq!(
        schema.number(&format!("SELECT count(*) {}", listeners(&schema))).await,
        0,
        "no session listens"
    );
}

/// A NOTIFY takes a lock that every commit of the database waits for.
// FAULTS E14
#[tokio::test(flavor = "multi_thread")]
async fn many_accepts_are_told_of_together() {
    const ACCEPTS: usize = 300;
    /// Minimum interval of a store's notifications.
    const PAUSE: Duration = Duration::from_millis(5);
    let schema = Schema::shared();
    let store = schema.options().open().await.expect("the store opens");
    let mut listener = PgListener::connect(schema.url()).await.expect("a listener");
    listener.listen(&format!("{}.oncebox_work", schema.name)).await.expect("listen");
    let start = Instant::now();
    // One after the other: calls that share a commit would also share its wake-up.
    for n in 0..ACCEPTS {
        first(&store, &n.to_string()).await;
    }
    // The last notification: the store sends none after it is quiet, and PostgreSQL keeps the order.
    in_time(listener.recv()).await.expect("at least one");
    schema.run(&format!("SELECT pg_notify('{}.oncebox_work', 'end')", schema.name)).await;
    let mut notifications = 1_u128;
    while in_time(listener.recv()).await.expect("a notification").payload() != "end" {
        notifications += 1;
    }
    let max = start.elapsed().as_millis() / PAUSE.as_millis() + 2;
    assert!(
        notifications <= max,
        "{notifications} notifications for {ACCEPTS} accepts in {:?}",
        start.elapsed()
    );
}
