//! Transports to the workers: a pipe each, HTTP each, or a shared broker. Tests: tests/short.rs.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result};
use oncebox_servers::RabbitMqServer;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;

use super::proxy::{FaultProxy, LinkFault};
use super::publisher::QueuePublisher;
use super::workers::ProcessEvent;
use super::{RunOptions, SourceKind};
use crate::ledger::{Fact, ProcessLedger};
use crate::plan::{RoundPlan, id_of};
use crate::seam::pause;
use crate::worker::{HandedDelivery, WorkerReport, WorkerTransport};

/// The transports of all rounds.
pub(super) struct Transports {
    source: SourceKind,
    rabbit: Option<Arc<SharedBroker>>,
    rounds: u64,
}

struct SharedBroker {
    broker: RabbitMqServer,
    /// Proxy between the workers and the broker.
    proxy: FaultProxy,
    /// True while a fault acts on the broker.
    busy: AtomicBool,
}

/// The transport of a round.
pub(super) enum RoundTransport {
    Pipe,
    Http(HttpSender),
    Rabbit(QueuePublisher),
}

impl RoundTransport {
    /// Returns the transport as worker jobs name it.
    pub(super) fn way(&self) -> WorkerTransport {
        match self {
            Self::Pipe => WorkerTransport::Pipe,
            Self::Http(_) => WorkerTransport::Http,
            Self::Rabbit(publisher) => WorkerTransport::Rabbit {
                url: publisher.url_of_workers().to_owned(),
                queue: publisher.queue().to_owned(),
            },
        }
    }
}

impl Transports {
    pub(super) fn start(options: &RunOptions) -> Result<Self> {
        let rabbit = if options.source == SourceKind::Rabbitmq {
            let broker = RabbitMqServer::start().context("cannot start RabbitMQ")?;
            let proxy = FaultProxy::start(broker.port())?;
            Some(Arc::new(SharedBroker { broker, proxy, busy: AtomicBool::new(false) }))
        } else {
            None
        };
        Ok(Self { source: options.source, rabbit, rounds: 0 })
    }

    /// Opens the transport of a new round.
    pub(super) fn open(&mut self, events: &Sender<ProcessEvent>) -> Result<RoundTransport> {
        self.rounds += 1;
        Ok(match (&self.rabbit, self.source) {
            (Some(rabbit), _) => {
                let queue = format!("chaos-{}", self.rounds);
                let url = rabbit.broker.url();
                let theirs = url.replacen(
                    &format!(":{}/", rabbit.broker.port()),
                    &format!(":{}/", rabbit.proxy.port()),
                    1,
                );
                RoundTransport::Rabbit(QueuePublisher::start(url, theirs, queue, events.clone())?)
            }
            (None, SourceKind::Http) => RoundTransport::Http(HttpSender::start(events.clone())?),
            (None, _) => RoundTransport::Pipe,
        })
    }

    /// Returns the number of messages in a queue of the broker, and of its dead letters.
    pub(super) fn left(&self, queue: &str) -> Result<(usize, usize)> {
        let Some(rabbit) = &self.rabbit else { return Ok((0, 0)) };
        Ok((rabbit.broker.total(queue)?, rabbit.broker.total(&dead_letters(queue))?))
    }

    /// Inflicts a fault on a connection to the broker. Returns true if there was one.
    pub(super) fn disturb(&self, trouble: LinkFault, rng: &mut fastrand::Rng) -> bool {
        self.rabbit.as_ref().is_some_and(|rabbit| rabbit.proxy.disturb(trouble, rng))
    }

    /// Kills the broker and starts it again, in the background.
    pub(super) fn kill_broker(&self, ledger: &Arc<ProcessLedger>) {
        let Some(rabbit) = self.rabbit.clone() else { return };
        if rabbit.busy.swap(true, Ordering::AcqRel) {
            return;
        }
        let ledger = Arc::clone(ledger);
        std::thread::spawn(move || {
            let note = |what: &str| ledger.note(Fact::Fault { life: 0, what: what.to_owned() });
            note("broker: killed");
            if let Err(error) = rabbit.broker.kill9().and_then(|()| rabbit.broker.start_again()) {
                eprintln!("chaos: the broker did not come back: {error:#}");
            }
            note("broker: started again");
            rabbit.busy.store(false, Ordering::Release);
        });
    }

    /// Waits until the last fault of the broker is over.
    pub(super) fn settle(&self) {
        while self.rabbit.as_ref().is_some_and(|rabbit| rabbit.busy.load(Ordering::Acquire)) {
            std::thread::park_timeout(Duration::from_millis(10));
        }
    }
}

/// Returns the dead-letter queue of a queue.
pub(crate) fn dead_letters(queue: &str) -> String {
    format!("{queue}.dead")
}

/// Posts messages to workers, as CloudEvents.
pub(super) struct HttpSender {
    runtime: Runtime,
    events: Sender<ProcessEvent>,
}

impl HttpSender {
    fn start(events: Sender<ProcessEvent>) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        Ok(Self { runtime, events })
    }

    /// Posts a delivery to a worker. Some senders disconnect before the response and send again; not after the last
    /// fault.
    pub(super) fn post(
        &self,
        (place, life, port): (usize, u64, u16),
        plan: &RoundPlan,
        handed: HandedDelivery,
        quiescent: bool,
    ) {
        let request = request(plan, handed, port);
        let leaves = !quiescent && handed.d % 50 == 7;
        let events = self.events.clone();
        self.runtime.spawn(async move {
            let answer =
                tokio::time::timeout(Duration::from_secs(30), exchange(port, &request, leaves)).await;
            let report = match answer {
                Ok(Ok((status, text))) => interpret(handed.d, status, &text),
                Ok(Err(_)) | Err(_) => WorkerReport::Again(handed.d),
            };
            if matches!(report, WorkerReport::Again(_)) {
                pause(Duration::from_millis(20)).await;
            }
            let _ = events.send(ProcessEvent::Reported(place, life, report));
        });
    }
}

/// Returns the sender's interpretation of a response.
fn interpret(delivery: u64, status: u16, text: &str) -> WorkerReport {
    match status {
        200..300 => WorkerReport::Acked(delivery),
        // Quarantined for an operator: do not send it again.
        422 if text.contains("conflict") || text.contains("stale") => WorkerReport::Acked(delivery),
        408 | 409 | 429 | 500.. => WorkerReport::Again(delivery),
        _ => WorkerReport::Refused(delivery, format!("{status} {text}")),
    }
}

fn request(plan: &RoundPlan, handed: HandedDelivery, port: u16) -> Vec<u8> {
    let planned = plan.message(handed.m);
    let body = plan.payload(handed.m, handed.v);
    let made = SystemTime::UNIX_EPOCH + Duration::from_millis(u64::try_from(handed.at).unwrap_or(0));
    let line = planned.line.map(|line| format!("ce-partitionkey: line-{line}\r\n")).unwrap_or_default();
    format!(
        "POST /in/chaos HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nconnection: close\r\ncontent-type: application/json\r\n\
         ce-specversion: 1.0\r\nce-id: {}\r\nce-source: chaos\r\nce-type: {}\r\nce-time: {}\r\n{line}\
         content-length: {}\r\n\r\n{body}",
        id_of(handed.m),
        planned.kind.as_str(),
        humantime::format_rfc3339_millis(made),
        body.len()
    )
    .into_bytes()
}

/// Sends a request, and returns the status and the text of the response. With `leaves` it does not wait for it.
async fn exchange(port: u16, request: &[u8], leaves: bool) -> std::io::Result<(u16, String)> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
    stream.write_all(request).await?;
    if leaves {
        return Err(std::io::ErrorKind::ConnectionAborted.into());
    }
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    let text = String::from_utf8_lossy(&answer).into_owned();
    let status = text.get(9..12).and_then(|digits| digits.parse().ok());
    status.map(|status| (status, text)).ok_or_else(|| std::io::ErrorKind::UnexpectedEof.into())
}
