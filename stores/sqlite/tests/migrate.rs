//! The schema and its version, for operators.

use oncebox::ErrorKind;
use oncebox::store::Migrate as _;
use oncebox_sqlite::Sqlite;

#[tokio::test]
async fn a_file_is_planned_then_migrated_then_opened() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let options = Sqlite::options(dir.path().join("inbox.db")).migrate(false);
    assert_eq!(options.clone().open().expect_err("no schema yet").kind(), ErrorKind::SchemaOutdated);
    assert_eq!(options.current().await.expect("current"), 0);

    let plan = options.pending().await.expect("plan");
    assert!(plan.iter().all(|step| step.sql.contains("CREATE TABLE")), "the plan shows what will run");
    assert_eq!(options.current().await.expect("current"), 0, "planning changes nothing");

    assert_eq!(options.apply().await.expect("apply"), plan);
    assert_eq!(options.apply().await.expect("apply again"), [], "what is done is not done again");
    assert_eq!(options.current().await.expect("current"), 2);
    options.open().expect("an up-to-date file opens");
}

#[tokio::test]
async fn many_at_once_migrate_once() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let options = Sqlite::options(dir.path().join("inbox.db")).migrate(false);
    // FAULTS I4
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let options = options.clone();
            tokio::spawn(async move { options.apply().await })
        })
        .collect();
    let mut applied = 0;
    for task in tasks {
        applied += usize::from(!task.await.expect("no panic").expect("apply").is_empty());
    }
    assert_eq!(applied, 1);
}
