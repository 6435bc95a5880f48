//! A dropped store leaves no thread and no open file. The only test of its file, because it checks the whole process.
#![cfg(target_os = "linux")]

mod support;

use std::time::{Duration, Instant};

use oncebox::state::Settlement;
use oncebox::store::{Inspect, Store as _, Transactional as _, Wakeups as _};
use support::{TestFile, claim, first, inbox, offer};

/// Returns the names of the store's threads.
fn threads() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").expect("the process");
    // A thread may end during the check.
    let names = tasks.flatten().filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    names.filter(|name| name.starts_with("oncebox")).collect()
}

/// Returns the number of open files in the directory of a test.
fn open_files(file: &TestFile) -> usize {
    let open = std::fs::read_dir("/proc/self/fd").expect("the process").flatten();
    open.filter_map(|fd| std::fs::read_link(fd.path()).ok())
        .filter(|path| path.starts_with(file.dir()))
        .count()
}

fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_mins(1), "{what}: {:?}", threads());
        std::thread::yield_now();
    }
}

// FAULTS section 7, I13
#[tokio::test]
async fn a_dropped_store_leaves_nothing_behind() {
    let file = TestFile::new();
    for round in 0..5 {
        let store = file.open();
        let mut wakeup = store.subscribe();
        let _second = store.subscribe();
        first(&store, &round.to_string()).await;
        wakeup.woken().await;
        let claimed = claim(&store, 1).await;
        // An owner that holds entries keeps its lock file, so that the next process can see that it is dead.
        store.settle(&[Settlement::done(&claimed[0].claim)]).await.expect("settle");
        store.count(&inbox(), None).await.expect("count");
        let tx = store.begin().await.expect("begin");
        assert_eq!(threads().len(), 2, "a writer, and one that watches, however many listen");
        let clone = store.clone();
        drop(store);
        drop(tx);
        clone.accept(&[offer("again")]).await.expect("a clone is the same store");
        drop(clone);
        wait_until("threads stay", || threads().is_empty());
        wait_until("files stay open", || open_files(&file) == 0);
    }
    let left: Vec<_> = std::fs::read_dir(file.dir()).expect("the directory").flatten().collect();
    assert_eq!(left.len(), 1, "the log is folded into the file: {left:?}");
}
