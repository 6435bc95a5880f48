//! The dedupe window is a contract: a source that may bring a message again later than the inbox remembers is found at
//! start.

mod support;

use std::time::Duration;

use async_trait::async_trait;
use oncebox::config::ShortWindow;
use oncebox::source::{Ack, Delivery, Redelivery, Source, channel};
use oncebox::{Config, ErrorKind, Inbox};
use support::log_capture::LogCapture;
use support::{Testbed, in_time, message};

const DAY: Duration = Duration::from_hours(24);
const WEEK: Duration = Duration::from_hours(7 * 24);

fn setup(retention: Option<Duration>, short_window: ShortWindow) -> Testbed {
    Testbed::new(|inbox, script| {
        inbox.config(Config { retention, short_window, ..Config::default() }).on("t", script.handler("h"))
    })
}

// FAULTS H1
#[tokio::test]
async fn a_handler_that_forgets_earlier_than_the_inbox_counts() {
    let setup = Testbed::new(|inbox, script| {
        let config = Config { retention: Some(WEEK), ..Config::default() };
        inbox.config(config).on("t", script.handler("h")).on("t", script.handler("brief").retention(DAY))
    });
    let running = setup.inbox.start();
    let (_sender, source) = channel("broker", 1);
    let error = running.receive(source.redelivers(Redelivery::Within(2 * DAY))).unwrap_err();
    assert!(error.what().contains("`retention` is 86400s"), "{error}");
}

// FAULTS H1
#[tokio::test]
async fn a_source_that_remembers_longer_than_the_inbox_is_refused() {
    let cases = [
        (Some(WEEK), Redelivery::Within(WEEK), true),
        (Some(WEEK), Redelivery::Within(DAY), true),
        (Some(WEEK), Redelivery::Within(WEEK + Duration::from_millis(1)), false),
        (Some(WEEK), Redelivery::Forever, false),
        (Some(WEEK), Redelivery::Unknown, true),
        (None, Redelivery::Forever, true),
        (None, Redelivery::Within(Duration::MAX), true),
    ];
    for (retention, redelivers, taken) in cases {
        let setup = setup(retention, ShortWindow::Refuse);
        let running = setup.inbox.start();
        let (sender, source) = channel("broker", 1);
        let received = running.receive(source.redelivers(redelivers));
        assert_eq!(received.is_ok(), taken, "{retention:?} {redelivers:?}");
        if let Err(error) = received {
            assert_eq!(error.kind(), ErrorKind::InvalidConfig);
            let value = format!("{redelivers:?}");
            for part in
                ["`retention` is 604800s", "\"broker\"", "\"test\"", &value, "set `short_window` to Warn"]
            {
                assert!(error.what().contains(part), "{error} does not say {part:?}");
            }
            assert!(
                in_time(sender.deliver(message("1", "ok"))).await.is_err(),
                "nothing was received from it"
            );
        } else {
            assert_eq!(in_time(sender.deliver(message("1", "ok"))).await.unwrap(), Ack::Done);
        }
    }
}

#[tokio::test]
async fn or_it_is_warned_of() {
    let capture = LogCapture::default();
    let _listening = capture.listen();
    let setup = setup(Some(DAY), ShortWindow::Warn);
    let running = setup.inbox.start();
    let (sender, source) = channel("broker", 1);
    running.receive(source.redelivers(Redelivery::Within(WEEK))).unwrap();
    let logged = capture.logged("`retention` is 86400s");
    assert!(
        logged.len() == 1 && logged[0].starts_with("WARN") && logged[0].contains("Within(604800s)"),
        "{logged:?}"
    );
    assert_eq!(in_time(sender.deliver(message("1", "ok"))).await.unwrap(), Ack::Done);
}

// A source that says nothing of it is taken as before.
#[tokio::test]
async fn a_source_need_not_know() {
    struct Silent;
    #[async_trait]
    impl Source for Silent {
        fn name(&self) -> &'static str {
            "silent"
        }

        async fn recv(&mut self) -> Option<Delivery> {
            None
        }
    }
    assert_eq!(Silent.redelivers_for(), Redelivery::Unknown);
    let setup = setup(Some(DAY), ShortWindow::Refuse);
    setup.inbox.start().receive(Silent).unwrap();
    // Without a store nothing is remembered anyway, and that was said.
    let direct = Inbox::direct("test").build().unwrap();
    let (_sender, source) = channel("broker", 1);
    direct.start().receive(source.redelivers(Redelivery::Forever)).unwrap();
}
