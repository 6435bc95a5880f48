//! Batches and single messages that race with another call for the same keys.

mod support;

use std::sync::Arc;

use oncebox::state::Outcome;
use oncebox::store::{Accepted, NewMessage, Store as _};
use oncebox::{Message, Policy};
use support::{Schema, in_time, offer, run};

/// The short path of a batch finds the key unknown, and a conflict when it writes. It starts again, and loses nothing.
// FAULTS A2
#[tokio::test]
async fn a_key_that_comes_in_from_elsewhere_meanwhile_is_a_duplicate_and_its_neighbours_are_stored() {
    // Keys, and the number of earlier batches without known keys. After enough of them, the store skips the lookup.
    let shapes: [(&[&str], usize); 3] = [(&["0", "1", "2"], 0), (&["0", "1", "2"], 40), (&["1"], 0)];
    let shapes = shapes.into_iter().flat_map(|(keys, quiet)| [(keys, quiet, true), (keys, quiet, false)]);
    for (keys, quiet, committed) in shapes {
        let schema = Schema::shared();
        let store = schema.shop().await;
        for batch in 0..quiet {
            let batch = ["a", "b"].map(|name| offer(&format!("{name}{batch}")));
            store.accept(&batch).await.expect("accept");
        }
        schema.run("TRUNCATE @proof, @message, @entry").await;
        // Another process is about to commit the first message, which no other transaction can see yet.
        support::first(&store, "1").await;
        let mut other = schema.connect().await;
        let hide = "CREATE TEMP TABLE hidden AS SELECT * FROM @proof; DELETE FROM @proof";
        run(&mut other, &schema.sql(hide)).await.expect("a hidden row");
        run(&mut other, &schema.sql("BEGIN; INSERT INTO @proof SELECT * FROM hidden")).await.expect("a row");

        let batch: Vec<_> = keys.iter().map(|key| offer(key)).collect();
        let accepting = store.accept(&batch);
        let deciding = async {
            let blocked = "EXISTS (SELECT 1 FROM pg_locks l JOIN pg_stat_activity a USING (pid) \
                           WHERE NOT l.granted AND a.query LIKE '%' || :schema || '%')";
            schema.wait_for(&blocked.replace(":schema", &format!("'{}'", schema.name))).await;
            run(&mut other, if committed { "COMMIT" } else { "ROLLBACK" }).await.expect("an end");
        };
        let (accepted, ()) = in_time(Box::pin(async { tokio::join!(accepting, deciding) })).await;
        let firsts: Vec<bool> = accepted
            .expect("accept")
            .iter()
            .map(|one| match one {
                Accepted::First(_) => true,
                Accepted::Duplicate(_) => false,
                other => panic!("{other:?}"),
            })
            .collect();
        let expected: Vec<bool> = keys.iter().map(|key| *key != "1" || !committed).collect();
        assert_eq!(firsts, expected);
        let stored = i64::try_from(keys.len()).expect("a few");
        assert_eq!(schema.count("@proof").await, stored);
        // The entry of the hidden row, which no transaction rolled back.
        assert_eq!(schema.count("@entry").await, stored + i64::from(!committed));
    }
}

/// A delivery waits for an unfinished erasure of its key, and stores no content after it.
// FAULTS S12
#[tokio::test]
async fn what_meets_an_erasure_on_its_way_in_is_not_stored() {
    let mut conflict = offer("1");
    let other = Message::new("1", "t", "something else").with_source(conflict.message.source());
    conflict = NewMessage::new(support::inbox(), conflict.key, Arc::new(other), conflict.routes);
    let mut late = offer("1");
    late.routes = [support::route("late")].into();
    // A batch with both offers must not wait for the erasure while it holds a key.
    let both = vec![conflict.clone(), late.clone()];
    for batch in [vec![conflict], vec![late], both] {
        let schema = Schema::shared();
        let store = schema.shop().await;
        support::first(&store, "1").await;
        let claimed = support::claim_one(&store).await;
        let done = claimed.claim.settle(&Policy::default(), Outcome::Done);
        store.settle(&[done]).await.expect("settle");
        let mut other = schema.connect().await;
        let erase =
            "BEGIN; UPDATE @proof SET fingerprint = decode(repeat('00', 16), 'hex'); DELETE FROM @message";
        run(&mut other, &schema.sql(erase)).await.expect("half of an erasure");
        let accepting = store.accept(&batch);
        let deciding = async {
            let blocked = "EXISTS (SELECT 1 FROM pg_locks l JOIN pg_stat_activity a USING (pid) \
                           WHERE NOT l.granted AND a.query LIKE '%' || :schema || '%')";
            schema.wait_for(&blocked.replace(":schema", &format!("'{}'", schema.name))).await;
            run(&mut other, "COMMIT").await.expect("an end");
        };
        let (accepted, ()) = in_time(Box::pin(async { tokio::join!(accepting, deciding) })).await;
        assert_eq!(accepted.expect("accept").len(), batch.len());
        for table in ["@quarantine", "@message", "@scheduled", "@entry"] {
            assert_eq!(schema.count(table).await, 0, "{table}");
        }
    }
}
