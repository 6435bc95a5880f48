//! Batches that meet another one with the same keys on its way in.

mod support;

use oncebox::store::{Accepted, Store as _};
use support::{Schema, in_time, offer, run};

/// The short way of a batch finds the key unknown, and meets it when it writes: it starts again, and loses nothing.
// FAULTS A2
#[tokio::test]
async fn a_key_that_comes_in_from_elsewhere_meanwhile_is_a_duplicate_and_its_neighbours_are_stored() {
    for committed in [true, false] {
        let schema = Schema::shared();
        let store = schema.shop().await;
        // What another process is about to commit: the first message, which nobody sees yet.
        support::first(&store, "1").await;
        let mut other = schema.connect().await;
        let hide = "CREATE TEMP TABLE hidden AS SELECT * FROM @proof; DELETE FROM @proof";
        run(&mut other, &schema.sql(hide)).await.expect("a hidden row");
        run(&mut other, &schema.sql("BEGIN; INSERT INTO @proof SELECT * FROM hidden")).await.expect("a row");

        let batch = [offer("0"), offer("1"), offer("2")];
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
        assert_eq!(firsts, [true, !committed, true]);
        assert_eq!(schema.count("@proof").await, 3);
        assert_eq!(schema.count("@entry").await, if committed { 3 } else { 4 });
    }
}
