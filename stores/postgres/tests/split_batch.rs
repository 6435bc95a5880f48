//! A large batch that is stored in two transactions at the same time keeps all guarantees.

mod support;

use oncebox::store::{Accepted, Store};
use oncebox::{BoxError, Context, ErrorKind, Inbox, Message, handler};
use oncebox_postgres::Postgres;
use oncebox_testkit::{FaultyStore, StoreFault, StoreVerb};
use support::Schema;

/// Enough for two parts.
const MANY: usize = 300;

async fn inbox(schema: &Schema) -> Inbox<Postgres> {
    built(schema.options().open().await.expect("the store opens"))
}

fn built<S: Store>(store: S) -> Inbox<S> {
    async fn ship<S: Store>(_: Message, _: &mut Context<S>) -> Result<(), BoxError> {
        Ok(())
    }
    Inbox::builder("orders", store).on("order.placed", handler("ship", ship)).build().expect("an inbox")
}

fn message(id: usize, payload: &str) -> Message {
    Message::new(id.to_string(), "order.placed", payload.to_owned())
}

fn many() -> impl Iterator<Item = Message> {
    (0..MANY).map(|id| message(id, "first"))
}

async fn transactions(schema: &Schema) -> i64 {
    schema.number("SELECT count(DISTINCT xmin::text) FROM @message").await
}

#[tokio::test]
async fn a_large_batch_is_answered_in_its_order_and_a_key_that_comes_again_is_not_first() {
    let schema = Schema::shared();
    let inbox = inbox(&schema).await;
    // All keys three times, the last time with another payload.
    let again = (0..MANY).rev().map(|id| message(id, "first"));
    let other = (0..MANY).map(|id| message(id, "other"));
    let answers = inbox.accept_batch(many().chain(again).chain(other)).await.expect("accept");
    assert_eq!(transactions(&schema).await, 2);
    assert_eq!(answers.len(), 3 * MANY);
    for (place, answer) in answers.iter().enumerate() {
        let expected = matches!(
            (place / MANY, answer),
            (0, Ok(Accepted::First(_))) | (1, Ok(Accepted::Duplicate(_))) | (2, Ok(Accepted::Conflict(_)))
        );
        assert!(expected, "{place}: {answer:?}");
    }
    let stored = "SELECT count(*) FROM @message WHERE payload = 'first'";
    assert_eq!(schema.number(stored).await, i64::try_from(MANY).expect("a few"));
    // Each message has its own result.
    let Ok(Accepted::First(seq)) = answers[7] else { panic!("{:?}", answers[7]) };
    assert_eq!(
        schema.text(&format!("SELECT convert_from(id, 'UTF8') FROM @message WHERE seq = {}", seq.0)).await,
        "7"
    );
}

#[tokio::test]
async fn a_batch_that_asks_for_order_is_one_transaction() {
    let schema = Schema::shared();
    let inbox = inbox(&schema).await;
    let line = |message: Message| message.with_ordering_key("k");
    inbox.accept_batch((0..10).map(|id| line(message(1_000 + id, "first")))).await.expect("accept");
    schema.run("DELETE FROM @message").await;
    let one = many().take(MANY - 1).chain([line(message(9_999, "first"))]);
    inbox.accept_batch(one).await.expect("accept");
    assert_eq!(transactions(&schema).await, 1);
}

#[tokio::test]
async fn what_one_part_could_not_store_is_told_of_its_messages_alone() {
    let schema = Schema::shared();
    let inbox = inbox(&schema).await;
    let refuse = "CREATE FUNCTION @refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
                  IF get_byte(NEW.digest, 0) % 2 = ANY (TG_ARGV[0]::int[]) THEN RAISE EXCEPTION 'no'; END IF; RETURN NEW; END $$; \
                  CREATE TRIGGER refuse BEFORE INSERT ON @proof FOR EACH ROW EXECUTE FUNCTION @refuse('{1}')";
    schema.run(refuse).await;
    let answers = inbox.accept_batch(many()).await.expect("a part was stored");
    let stored = answers.iter().filter(|answer| matches!(answer, Ok(Accepted::First(_)))).count();
    let refused = |answer: &&Result<Accepted, oncebox::Error>| {
        answer.as_ref().is_err_and(|error| error.kind() == ErrorKind::Unavailable && error.is_retryable())
    };
    assert_eq!(answers.iter().filter(refused).count(), MANY - stored, "{answers:?}");
    assert!(stored > 0 && stored < MANY, "{stored}");
    assert_eq!(schema.count("@message").await, i64::try_from(stored).expect("a few"));

    schema.run("DROP TRIGGER refuse ON @proof; CREATE TRIGGER refuse BEFORE INSERT ON @proof FOR EACH ROW EXECUTE FUNCTION @refuse('{0,1}')").await;
    let others = (0..MANY).map(|id| message(1_000 + id, "first"));
    let error = inbox.accept_batch(others).await.expect_err("nothing was stored");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    schema.run("DROP TRIGGER refuse ON @proof").await;
    let again = inbox.accept_batch(many()).await.expect("accept");
    let known = again.iter().filter(|answer| matches!(answer, Ok(Accepted::Duplicate(_)))).count();
    assert_eq!(known, stored, "what was stored is recognised, and the rest is new");
    assert!(again.iter().all(Result::is_ok), "{again:?}");
}

/// If one part reports that nothing was stored, and the outcome of the other is unknown, no error says that nothing was
/// stored.
#[tokio::test]
async fn parts_that_fail_in_different_ways_are_told_of_apart() {
    let schema = Schema::shared();
    let store = FaultyStore::new(schema.options().open().await.expect("the store opens"));
    let inbox = built(store);
    let (away, unknown) = (StoreFault::ErrBefore(ErrorKind::Unavailable), StoreFault::ErrAfter);
    inbox.store().faults().script(StoreVerb::Accept, [Some(unknown), Some(away)]);
    let answers = inbox.accept_batch(many()).await.expect("each has its own");
    let kinds =
        |kind| answers.iter().filter(|one| one.as_ref().is_err_and(|error| error.kind() == kind)).count();
    let (unknown, away) = (kinds(ErrorKind::CommitUnknown), kinds(ErrorKind::Unavailable));
    assert!(unknown > 0 && away > 0 && unknown + away == MANY, "{unknown} and {away}");
    assert_eq!(schema.count("@message").await, i64::try_from(unknown).expect("a few"), "it was stored");
}

/// The store refuses one bad message and stores the others, in one part or in two.
#[tokio::test]
async fn one_bad_message_is_refused_alone() {
    for many in [20, MANY] {
        let schema = Schema::shared();
        let inbox = inbox(&schema).await;
        let bad = message(1_000, "first").with_source("a\0b");
        let good = (0..many).map(|id| message(id, "first").with_ordering_key("k"));
        let good: Vec<Message> =
            if many == MANY { (0..many).map(|id| message(id, "first")).collect() } else { good.collect() };
        let again = message(0, "other");
        let answers =
            inbox.accept_batch(good.into_iter().chain([bad, again])).await.expect("the store answers");
        let refused = answers[many].as_ref().expect_err("no NUL in a source");
        assert_eq!(refused.kind(), ErrorKind::InvalidMessage, "{refused:?}");
        assert!(answers[..many].iter().all(|one| matches!(one, Ok(Accepted::First(_)))), "{answers:?}");
        assert!(matches!(answers[many + 1], Ok(Accepted::Conflict(_))), "the first one counts: {answers:?}");
        let stored = "SELECT string_agg(convert_from(id, 'UTF8'), ',' ORDER BY seq >> 6) FROM @message WHERE ordering_key IS NOT NULL";
        if many != MANY {
            let order = (0..many).map(|id| id.to_string()).collect::<Vec<_>>().join(",");
            assert_eq!(schema.text(stored).await, order);
        }
    }
}

/// Messages after a failed one are not tried, because that would change the order of a line.
#[tokio::test]
async fn nothing_is_tried_behind_a_store_that_goes_away() {
    let schema = Schema::shared();
    let store = FaultyStore::new(schema.options().open().await.expect("the store opens"));
    let inbox = built(store);
    let away = StoreFault::ErrBefore(ErrorKind::Unavailable);
    inbox.store().faults().script(StoreVerb::Accept, [None, None, Some(away)]);
    let bad = message(1_000, "first").with_source("a\0b");
    let good = (0..4).map(|id| message(id, "first").with_ordering_key("k"));
    let answers = inbox.accept_batch(std::iter::once(bad).chain(good)).await.expect("each has its own");
    let kinds: Vec<_> = answers.iter().map(|one| one.as_ref().map_err(oncebox::Error::kind).err()).collect();
    let away = Some(ErrorKind::Unavailable);
    assert_eq!(kinds, [Some(ErrorKind::InvalidMessage), away, away, away, away], "{answers:?}");
    assert_eq!(schema.count("@message").await, 0);
}
