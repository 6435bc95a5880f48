//! A minimal client: it shares the processor with the measured server.

use std::net::SocketAddr;

use anyhow::{Context as _, Result, bail, ensure};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::serve::{KIND, TOKEN};

pub(crate) struct HttpClient {
    stream: TcpStream,
    out: Vec<u8>,
    buffer: Vec<u8>,
}

impl HttpClient {
    pub(crate) async fn connect(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, out: Vec::new(), buffer: Vec::with_capacity(4 << 10) })
    }

    /// Sends one plain message; returns the status.
    pub(crate) async fn plain(&mut self, id: &str, payload: &str) -> Result<u16> {
        let head = format!(
            "POST /in/plain HTTP/1.1\r\nhost: bench\r\nauthorization: Bearer {TOKEN}\r\nmessage-id: {id}\r\nmessage-type: {KIND}\r\ncontent-length: {}\r\n\r\n",
            payload.len()
        );
        self.out.clear();
        self.out.extend_from_slice(head.as_bytes());
        self.out.extend_from_slice(payload.as_bytes());
        self.exchange().await
    }

    /// Sends a prepared batch of events; returns the status.
    pub(crate) async fn batch(&mut self, events: &str) -> Result<u16> {
        let head = format!(
            "POST /in/events HTTP/1.1\r\nhost: bench\r\nauthorization: Bearer {TOKEN}\r\ncontent-type: application/cloudevents-batch+json\r\ncontent-length: {}\r\n\r\n",
            events.len()
        );
        self.out.clear();
        self.out.extend_from_slice(head.as_bytes());
        self.out.extend_from_slice(events.as_bytes());
        self.exchange().await
    }

    async fn exchange(&mut self) -> Result<u16> {
        self.stream.write_all(&self.out).await?;
        self.buffer.clear();
        let end = loop {
            if let Some(end) = self.buffer.windows(4).position(|window| window == b"\r\n\r\n") {
                break end + 4;
            }
            self.fill().await?;
        };
        let head = std::str::from_utf8(&self.buffer[..end]).context("a head of ASCII")?;
        let status = head.get(9..12).context("a status")?.parse()?;
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let length: usize = length.context("a length")?.parse()?;
        while self.buffer.len() < end + length {
            self.fill().await?;
        }
        ensure!(self.buffer.len() == end + length, "more than one answer");
        Ok(status)
    }

    async fn fill(&mut self) -> Result<()> {
        if self.stream.read_buf(&mut self.buffer).await? == 0 {
            bail!("the server closed the connection");
        }
        Ok(())
    }
}
