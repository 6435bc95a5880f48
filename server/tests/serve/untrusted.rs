//! FAULTS F11: sends untrusted input to both ports of a running sidecar, for a few seconds or for the minutes in the
//! variable `ONCEBOX_FUZZ_MINUTES`.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use oncebox_untrusted_input::feed;

use super::support::{Receiver, Sidecar, post};

const CONFIG: &str = "
[api]
listen = \"127.0.0.1:0\"
[inbox.messages]
[inbox.messages.http.messages]
format = \"plain\"
[inbox.messages.http.events]
format = \"cloudevents\"
[inbox.messages.http.hook]
format = \"standard-webhooks\"
secret = \"env:HOOK\"
[inbox.messages.http.github]
format = \"github\"
secret = \"env:GITHUB\"
";

/// Time limit of one request.
const ONE: Duration = Duration::from_secs(30);

fn duration() -> Duration {
    let minutes = std::env::var("ONCEBOX_FUZZ_MINUTES").ok();
    let minutes = minutes.map(|minutes| minutes.parse().expect("a number of minutes"));
    minutes.map_or(Duration::from_secs(4), |minutes: f64| Duration::from_secs_f64(60.0 * minutes))
}

/// Returns the status of each HTTP/1 response.
fn statuses(answer: &[u8]) -> Vec<u16> {
    let text = String::from_utf8_lossy(answer);
    let lines = text.split("HTTP/1.").skip(1);
    lines.filter_map(|rest| rest.get(2..5)?.parse().ok()).collect()
}

/// Sends arbitrary bytes, and reads until the end.
fn exchange(address: &str, input: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(ONE)).expect("a timeout");
    let mut answer = Vec::new();
    // The server may close the connection first.
    let _ = stream.write_all(input);
    let _ = stream.shutdown(Shutdown::Write);
    if let Err(error) = stream.read_to_end(&mut answer) {
        let in_time = !matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut);
        assert!(in_time, "no end within {ONE:?} of {:?}", String::from_utf8_lossy(input));
    }
    answer
}

#[test]
fn both_ports_survive_any_input() {
    let handler = Receiver::good();
    let config = format!(
        "allow_private = true\n{CONFIG}\n[inbox.messages.handler.messages]\nurl = \"{}\"\nretry = \"never\"\n",
        handler.url()
    );
    let secrets =
        [("HOOK", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"), ("GITHUB", "It's a Secret to Everybody")];
    let sidecar = Sidecar::with_env(&config, &secrets);
    let operators = sidecar.operators();
    let ports = [&sidecar.base, &operators].map(|base| base.strip_prefix("http://").unwrap());
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../chaos/untrusted-input/corpus/requests");
    let (end, sent, answered) = (Instant::now() + duration(), AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (corpus, sent, answered) = (&corpus, &sent, &answered);
            scope.spawn(move || {
                for round in 0.. {
                    feed(corpus, thread + 4 * round, 100, |input| {
                        if Instant::now() >= end {
                            return;
                        }
                        for address in ports {
                            sent.fetch_add(1, Ordering::Relaxed);
                            for status in statuses(&exchange(address, input)) {
                                answered.fetch_add(1, Ordering::Relaxed);
                                assert!(status < 500, "{status} for {:?}", String::from_utf8_lossy(input));
                            }
                        }
                    });
                    if Instant::now() >= end {
                        return;
                    }
                }
            });
        }
    });
    let (sent, answered) = (sent.into_inner(), answered.into_inner());
    println!("{sent} connections, {answered} answers");
    assert!(sent > 100 && answered > sent / 10, "{sent} connections, {answered} answers");
    let lines = sidecar.lines();
    assert_eq!(lines.iter().find(|line| line.contains("panicked")), None);
    assert_eq!(post(&sidecar.url("messages"), "after", "t", "{}").status, 202, "it still works");
    sidecar.stop();
}
