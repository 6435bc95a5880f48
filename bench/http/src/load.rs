//! Many clients at once, some slow, broken or malicious. The server must serve all others. Tests: tests/load.rs.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::Args;
use crate::client::HttpClient;
use crate::process::{ServerProcess, own_cpu};

/// Maximum wait of a good client on a loaded machine; longer counts as a failure.
const PATIENCE: Duration = Duration::from_secs(30);

/// Maximum idle time of a good client's connection; the server allows a little more.
const OWN_FAULT: Duration = Duration::from_secs(3);

/// Roles of clients, and their share of a hundred.
const ROLES: [(ClientRole, usize); 7] = [
    (ClientRole::Good, 60),
    (ClientRole::SlowHead, 10),
    (ClientRole::SlowBody, 10),
    (ClientRole::Garbage, 5),
    (ClientRole::HeaderBomb, 5),
    (ClientRole::EndlessBody, 5),
    (ClientRole::Silent, 5),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClientRole {
    Good,
    SlowHead,
    SlowBody,
    Garbage,
    HeaderBomb,
    EndlessBody,
    Silent,
}

#[derive(Default)]
struct LoadCounts {
    stop: AtomicBool,
    answered: AtomicU64,
    failed: AtomicU64,
    attacks: AtomicU64,
    slowest_ms: AtomicU64,
    /// Connections that a good client left idle too long.
    late: AtomicU64,
    connected: AtomicU64,
}

pub(crate) async fn run(args: &Args) -> Result<()> {
    let dir = tempfile::tempdir()?;
    let served = ServerProcess::start(&dir.path().join("load.db").display().to_string()).await?;
    let (tally, address, began) = (Arc::<LoadCounts>::default(), served.address, served.memory()?);
    let clients: Vec<_> = (0..args.clients)
        .map(|number| {
            let tally = Arc::clone(&tally);
            tokio::spawn(async move { client(number, address, &tally).await })
        })
        .collect();
    let (mut peak, mut connected) = (began, 0);
    let (start, length) = (Instant::now(), Duration::from_secs(args.seconds));
    let mut beat = tokio::time::interval(Duration::from_millis(200));
    while start.elapsed() < length {
        beat.tick().await;
        peak = peak.max(served.memory()?);
        connected = connected.max(tally.connected.load(Ordering::Relaxed));
    }
    let (server, own) = (served.cpu()?, own_cpu()?);
    tally.stop.store(true, Ordering::Relaxed);
    for client in clients {
        client.await?;
    }
    let after = served.memory()?;
    served.stop().await?;
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let (answered, failed) = (count(&tally.answered), count(&tally.failed));
    println!("clients {} (connected at once: up to {connected}), {} s", args.clients, args.seconds);
    println!(
        "good requests answered {answered}, not answered {failed}, slowest {} ms",
        count(&tally.slowest_ms)
    );
    println!(
        "bad requests {}; good clients that were late themselves: {}",
        count(&tally.attacks),
        count(&tally.late)
    );
    println!(
        "memory of the server in MiB: {began} at the start, {peak} at most, {after} afterwards; ceiling {}",
        args.ceiling
    );
    println!("processor time in s: server {:.1}, clients {:.1}", server.as_secs_f64(), own.as_secs_f64());
    if failed > 0 || answered == 0 {
        bail!("good clients were not served");
    }
    if peak > args.ceiling {
        bail!("the server took more memory than it may");
    }
    if count(&tally.attacks) == 0 {
        bail!("the bad clients did nothing");
    }
    println!("verdict: good");
    Ok(())
}

fn role(number: usize) -> ClientRole {
    // An even spread: 37 and 100 have no common factor.
    let mut place = number * 37 % 100;
    for (role, share) in ROLES {
        if place < share {
            return role;
        }
        place -= share;
    }
    ClientRole::Good
}

async fn client(number: usize, address: SocketAddr, tally: &LoadCounts) {
    let role = role(number);
    let mut round = 0;
    while !tally.stop.load(Ordering::Relaxed) {
        if role == ClientRole::Good {
            good(number, &mut round, address, tally).await;
        } else {
            tally.connected.fetch_add(1, Ordering::Relaxed);
            // Ignore the result: the server's limits end it.
            let _ = tokio::time::timeout(PATIENCE, bad(role, address)).await;
            tally.connected.fetch_sub(1, Ordering::Relaxed);
            tally.attacks.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Sends messages over one connection until the end, and records whether each has a response.
async fn good(number: usize, round: &mut u64, address: SocketAddr, tally: &LoadCounts) {
    let Ok(mut client) = HttpClient::connect(address).await else {
        tally.failed.fetch_add(1, Ordering::Relaxed);
        return;
    };
    tally.connected.fetch_add(1, Ordering::Relaxed);
    // Not in lockstep, and not at full speed: other clients need room.
    let pause = Duration::from_millis(500 + number as u64 % 500);
    let mut beat = tokio::time::interval(pause);
    let mut used = Instant::now();
    while !tally.stop.load(Ordering::Relaxed) {
        beat.tick().await;
        *round += 1;
        // If the machine is too busy for its clients, the server may close their idle connections.
        if used.elapsed() > OWN_FAULT {
            tally.late.fetch_add(1, Ordering::Relaxed);
            break;
        }
        let start = Instant::now();
        let id = format!("{number}-{round}");
        let answer = tokio::time::timeout(PATIENCE, client.plain(&id, "{}")).await;
        let millis = u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX);
        tally.slowest_ms.fetch_max(millis, Ordering::Relaxed);
        let failure = match answer {
            Ok(Ok(202)) => {
                tally.answered.fetch_add(1, Ordering::Relaxed);
                used = Instant::now();
                continue;
            }
            Ok(Ok(status)) => format!("the server said {status}"),
            Ok(Err(error)) => format!("{error:#}"),
            Err(_) => "no answer came".to_owned(),
        };
        // The first ones suffice.
        if tally.failed.fetch_add(1, Ordering::Relaxed) < 10 {
            eprintln!("{id} after {millis} ms: {failure}");
        }
        break;
    }
    tally.connected.fetch_sub(1, Ordering::Relaxed);
}

async fn bad(role: ClientRole, address: SocketAddr) -> Result<()> {
    let mut stream = TcpStream::connect(address).await?;
    match role {
        ClientRole::SlowHead => stream.write_all(b"POST /in/plain HTTP/1.1\r\nhost: x\r\nx-a: b\r\n").await?,
        ClientRole::SlowBody => {
            stream
                .write_all(b"POST /in/plain HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n\r\n")
                .await?;
            stream.write_all(&vec![b'x'; 20_000]).await?;
        }
        ClientRole::Garbage => stream.write_all(b"\x16\x03\x01\x02\x00\x01\x00\xff\r\n\r\n\0\0\0").await?,
        ClientRole::HeaderBomb => {
            stream.write_all(b"POST /in/plain HTTP/1.1\r\n").await?;
            for _ in 0..5_000 {
                stream.write_all(b"x-header: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n").await?;
            }
        }
        ClientRole::EndlessBody => {
            stream
                .write_all(b"POST /in/plain HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n")
                .await?;
            let chunk = [b"4000\r\n", &[b'x'; 0x4000][..], b"\r\n"].concat();
            for _ in 0..10_000 {
                stream.write_all(&chunk).await?;
            }
        }
        ClientRole::Silent | ClientRole::Good => {}
    }
    // Until the server closes the connection.
    let mut buffer = [0; 1_024];
    while stream.read(&mut buffer).await? > 0 {}
    Ok(())
}
