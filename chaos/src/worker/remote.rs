//! Transports with a real source: HTTP and RabbitMQ. Tests: tests/short.rs.

use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::Result;
use oncebox::Inbox;
use oncebox::store::Store;
use oncebox_http::{Endpoint, Ingress, Server, Verify};
use oncebox_rabbitmq::{Field, Queue, RabbitMq};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use super::{LINE_HEADER, QUIESCE, ReportWriter, WorkerJob, WorkerReport, intake};
use crate::driver::dead_letters;
use crate::seam::Notes;

/// Resolves when the driver closes the pipe or ends this process. Until then it may only announce quiescence.
async fn dismissed(notes: &Notes) {
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    let listen = async {
        while let Ok(Some(line)) = lines.next_line().await {
            if line == QUIESCE {
                notes.quiesce();
            }
        }
    };
    tokio::select! {
        () = intake::stopped() => {}
        () = listen => {}
    }
}

/// Receives CloudEvents; a front worker runs no handlers.
pub(super) async fn http<S: Store>(
    inbox: &Inbox<S>,
    job: &WorkerJob,
    reports: &ReportWriter,
    notes: &Notes,
) -> Result<()> {
    let endpoint = Endpoint::cloud_events("chaos").verify(Verify::loopback());
    let router = Ingress::new().endpoint(endpoint, inbox).into_router()?;
    let running = (!job.front).then(|| inbox.start());
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    reports.send(WorkerReport::Listens(listener.local_addr()?.port()));
    let (stop, stopped) = oneshot::channel::<()>();
    let server = tokio::spawn(Server::new(listener, router).serve(async {
        let _ = stopped.await;
    }));
    dismissed(notes).await;
    drop(stop);
    let _ = tokio::time::timeout(Duration::from_secs(5), server).await;
    if let Some(running) = running {
        running.shutdown().await;
    }
    Ok(())
}

/// Consumes a queue.
pub(super) async fn rabbit<S: Store>(inbox: &Inbox<S>, url: &str, queue: &str, notes: &Notes) -> Result<()> {
    let source = RabbitMq::builder(url)
        .queue(Queue::existing(queue))
        .rejected_to("", dead_letters(queue))
        .ordering_key(Field::header(LINE_HEADER))
        .prefetch(48)
        .backoff(Duration::from_millis(20), Duration::from_millis(300))
        // Classic queues have no leader to elect.
        .reconnect_delay(Duration::from_millis(20))
        .response_timeout(Duration::from_secs(4))
        .build()?;
    let running = inbox.start();
    running.receive(source)?;
    dismissed(notes).await;
    running.shutdown().await;
    Ok(())
}
