//! Queries to a broker that AMQP does not have. A few lines of Erlang inside the broker answer them at once:
//! `rabbitmqctl` takes a second or more. Tests: `tests/rabbitmq.rs`.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::RabbitMqServer;
use crate::port::Port;
use crate::scratch::Scratch;

/// Timeout of a query.
const ANSWER: Duration = Duration::from_mins(1);

/// Writes the Erlang program.
pub(super) fn write(scratch: &Scratch, port: &Port) -> Result<()> {
    let text = include_str!("agent.erl").replace("PORT", &port.number().to_string());
    scratch.write(&scratch.path().join("agent.erl"), &text)
}

/// Returns the arguments that make Erlang run the program after the start of the broker, which works in a directory of the scratch.
pub(super) const ARGUMENTS: &str = r#"-eval file:eval("../agent.erl")."#;

impl RabbitMqServer {
    /// Returns the number of messages in a queue of the default vhost, unacknowledged ones included. AMQP counts only the others.
    pub fn total(&self, queue: &str) -> Result<usize> {
        let answer = self.query(&format!("total {queue}"))?;
        answer.parse().with_context(|| format!("the broker answered {answer:?}"))
    }

    /// Stops the only member of a quorum queue in the default vhost. The queue has no leader until
    /// [`start_queue`](Self::start_queue), or until the broker restarts.
    pub fn stop_queue(&self, queue: &str) -> Result<()> {
        self.query(&format!("stop {queue}")).map(drop)
    }

    /// Starts the member of a quorum queue that [`stop_queue`](Self::stop_queue) stopped.
    pub fn start_queue(&self, queue: &str) -> Result<()> {
        self.query(&format!("start {queue}")).map(drop)
    }

    /// Returns true if the broker answers queries, which it does after its start.
    pub(super) fn has_agent(&self) -> bool {
        TcpStream::connect((Ipv4Addr::LOCALHOST, self.ports.agent.number())).is_ok()
    }

    pub(super) fn query(&self, question: &str) -> Result<String> {
        let query = || -> Result<String> {
            let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.ports.agent.number()))?;
            stream.set_read_timeout(Some(ANSWER))?;
            writeln!(&stream, "{question}")?;
            let mut answer = String::new();
            BufReader::new(&stream).read_line(&mut answer)?;
            ensure!(answer.ends_with('\n'), "it hung up; its log ends with:\n{}", self.log_end());
            Ok(answer.trim().to_owned())
        };
        query().with_context(|| format!("the broker on port {} cannot answer {question:?}", self.port()))
    }
}
