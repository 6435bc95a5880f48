//! The conformance suite on sealed stores: they behave like the store inside.

use oncebox::Memory;
use oncebox_sealed::{Keyring, Sealed};
use oncebox_sqlite::{Sqlite, Synchronous};
use oncebox_testkit::{Harness, TestClock};

oncebox_testkit::store_conformance!(memory, on_memory);
oncebox_testkit::store_conformance!(sqlite, on_sqlite);

fn keys() -> Keyring {
    let key: [u8; 32] = std::array::from_fn(|at| u8::try_from(at).expect("small"));
    Keyring::new("k1", &key, &key).expect("keys")
}

async fn on_memory() -> Harness<Sealed<Memory>> {
    let clock = TestClock::new();
    Harness::new(Sealed::new(Memory::with_clock(clock.shared()), keys()), clock).sequences(64)
}

async fn on_sqlite() -> Harness<Sealed<Sqlite>> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let clock = TestClock::new();
    let options = Sqlite::options(dir.path().join("inbox.db")).synchronous(Synchronous::Normal);
    let options = options.clock(clock.shared());
    let open = move || Sealed::new(options.clone().open().expect("the file"), keys());
    let store = open();
    let again = move || std::future::ready(open());
    Harness::new(store, clock).keeping(dir).opening(again).steps(24).sequences(64)
}
