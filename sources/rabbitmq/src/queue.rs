//! The queue and its declaration. Tests: tests/deliveries.rs.

use lapin::types::{AMQPValue, FieldTable, LongString, ShortString};
use oncebox_core::Result;

use crate::error::refuse;

/// Type of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueueKind {
    /// It exists; the source declares nothing.
    Existing,
    Quorum,
    Classic,
}

/// Value of a queue argument.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Argument {
    /// A number.
    Number(i64),
    /// A text.
    Text(String),
    /// A boolean.
    Flag(bool),
}

impl From<i64> for Argument {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

impl From<&str> for Argument {
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}

impl From<String> for Argument {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<bool> for Argument {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}

impl From<&Argument> for AMQPValue {
    fn from(argument: &Argument) -> Self {
        match argument {
            Argument::Number(number) => Self::LongLongInt(*number),
            Argument::Text(text) => Self::LongString(LongString::from(text.as_str())),
            Argument::Flag(flag) => Self::Boolean(*flag),
        }
    }
}

/// A queue to consume. The source declares a [`quorum`](Self::quorum) or [`classic`](Self::classic) queue when it
/// connects. The broker refuses to declare a queue that exists with other arguments.
#[derive(Clone, Debug)]
pub struct Queue {
    pub(crate) name: String,
    pub(crate) kind: QueueKind,
    pub(crate) delivery_limit: Option<u32>,
    pub(crate) dead_letter_exchange: Option<String>,
    pub(crate) dead_letter_routing_key: Option<String>,
    /// True if the source declares the dead-letter queue.
    pub(crate) own_dead_letters: bool,
    pub(crate) dead_letters_at_least_once: bool,
    pub(crate) arguments: Vec<(String, Argument)>,
    pub(crate) bindings: Vec<(String, String)>,
}

impl From<&str> for Queue {
    fn from(name: &str) -> Self {
        Self::existing(name)
    }
}

impl From<String> for Queue {
    fn from(name: String) -> Self {
        Self::existing(name)
    }
}

impl Queue {
    /// Uses an existing queue: the source declares nothing, and a missing queue is an error. AMQP does not show the
    /// dead-letter exchange of a queue. So name it with [`dead_letter_exchange`](Self::dead_letter_exchange), or
    /// configure [`rejected_to`](crate::RabbitMqSourceBuilder::rejected_to) or
    /// [`discard_rejected`](crate::RabbitMqSourceBuilder::discard_rejected).
    pub fn existing(name: impl Into<String>) -> Self {
        Self::new(name.into(), QueueKind::Existing)
    }

    /// Declares a durable quorum queue: replicated, and recommended.
    pub fn quorum(name: impl Into<String>) -> Self {
        Self::new(name.into(), QueueKind::Quorum)
    }

    /// Declares a durable classic queue.
    pub fn classic(name: impl Into<String>) -> Self {
        Self::new(name.into(), QueueKind::Classic)
    }

    fn new(name: String, kind: QueueKind) -> Self {
        Self {
            name,
            kind,
            delivery_limit: None,
            dead_letter_exchange: None,
            dead_letter_routing_key: None,
            own_dead_letters: false,
            dead_letters_at_least_once: true,
            arguments: Vec::new(),
            bindings: Vec::new(),
        }
    }

    /// Maximum redeliveries of a quorum queue before it dead-letters a message. It counts returned messages and those
    /// of a lost channel. Default: the broker's, 20 from RabbitMQ 4.0 on.
    pub fn delivery_limit(mut self, limit: u32) -> Self {
        self.delivery_limit = Some(limit);
        self
    }

    /// Sets the exchange for rejected messages. The source checks that it exists; binding a queue to it is up to you.
    pub fn dead_letter_exchange(mut self, exchange: impl Into<String>) -> Self {
        self.dead_letter_exchange = Some(exchange.into());
        self
    }

    /// Sets the routing key of dead letters. Default: the message's own.
    pub fn dead_letter_routing_key(mut self, routing_key: impl Into<String>) -> Self {
        self.dead_letter_routing_key = Some(routing_key.into());
        self
    }

    /// Sends dead letters to this queue. The source declares it: durable, and of the same type.
    pub fn dead_letter_queue(mut self, queue: impl Into<String>) -> Self {
        self.dead_letter_exchange = Some(String::new());
        self.dead_letter_routing_key = Some(queue.into());
        self.own_dead_letters = true;
        self
    }

    /// Makes a quorum queue keep a dead letter until its target queue has confirmed it; needs the overflow
    /// `reject-publish`. Without this, a dead letter can get lost on its way. Default: true.
    pub fn dead_letters_at_least_once(mut self, yes: bool) -> Self {
        self.dead_letters_at_least_once = yes;
        self
    }

    /// Sets another argument of the declaration, such as `x-max-length`.
    pub fn argument(mut self, name: impl Into<String>, value: impl Into<Argument>) -> Self {
        self.arguments.push((name.into(), value.into()));
        self
    }

    /// Binds the queue to an existing exchange.
    pub fn bind(mut self, exchange: impl Into<String>, routing_key: impl Into<String>) -> Self {
        self.bindings.push((exchange.into(), routing_key.into()));
        self
    }

    /// Returns the name for AMQP.
    pub(crate) fn short_name(&self) -> ShortString {
        short(&self.name)
    }

    /// Returns the dead-letter queue if the source declares it.
    pub(crate) fn dead_letters(&self) -> Option<&str> {
        self.dead_letter_routing_key.as_deref().filter(|_| self.own_dead_letters)
    }

    pub(crate) fn validate(&self) -> Result<()> {
        if self.name.is_empty() {
            return refuse("queue", "it has no name", "name the queue to consume");
        }
        let texts =
            [("queue", Some(&self.name)), ("dead_letter_exchange", self.dead_letter_exchange.as_ref())];
        let keys = [("dead_letter_routing_key", self.dead_letter_routing_key.as_ref())];
        for (option, text) in texts.into_iter().chain(keys) {
            check_short(option, text.map_or("", String::as_str))?;
        }
        for (exchange, key) in &self.bindings {
            check_short("bind", exchange)?;
            check_short("bind", key)?;
        }
        for (name, _) in &self.arguments {
            check_short("argument", name)?;
        }
        if self.kind != QueueKind::Quorum && self.delivery_limit.is_some() {
            let why = "only a quorum queue that is declared here has one";
            return refuse("delivery_limit", why, "declare the queue with `Queue::quorum`, or leave it out");
        }
        if self.kind == QueueKind::Existing && (!self.arguments.is_empty() || !self.bindings.is_empty()) {
            let why = "nothing is declared of a queue that exists";
            return refuse("queue", why, "declare it with `Queue::quorum` or `Queue::classic`");
        }
        if self.dead_letter_routing_key.is_some() && self.dead_letter_exchange.is_none() {
            let why = "there is no exchange that would route by it";
            return refuse("dead_letter_routing_key", why, "name a `dead_letter_exchange`, too");
        }
        if self.dead_letter_exchange.as_deref() == Some("") && self.dead_letter_routing_key.is_none() {
            let why = "the default exchange routes to the queue that is named by the routing key, which would be this one or none";
            return refuse(
                "dead_letter_exchange",
                why,
                "name an exchange, or a `dead_letter_routing_key`, too",
            );
        }
        if self.dead_letters() == Some(self.name.as_str()) {
            let why = "what is rejected would come back at once, for ever";
            return refuse("dead_letter_queue", why, "name another queue");
        }
        Ok(())
    }

    /// Returns the arguments of the declaration.
    pub(crate) fn table(&self) -> FieldTable {
        let mut table = FieldTable::default();
        let mut text = |name: &str, value: &str| {
            table.insert(short(name), AMQPValue::LongString(LongString::from(value)));
        };
        text("x-queue-type", self.type_name());
        if let Some(exchange) = &self.dead_letter_exchange {
            text("x-dead-letter-exchange", exchange);
            if self.kind == QueueKind::Quorum && self.dead_letters_at_least_once {
                text("x-dead-letter-strategy", "at-least-once");
                text("x-overflow", "reject-publish");
            }
        }
        if let Some(key) = &self.dead_letter_routing_key {
            text("x-dead-letter-routing-key", key);
        }
        if let Some(limit) = self.delivery_limit {
            table.insert(short("x-delivery-limit"), AMQPValue::LongLongInt(i64::from(limit)));
        }
        for (name, value) in &self.arguments {
            table.insert(short(name), value.into());
        }
        table
    }

    /// Returns the arguments of companion queues: the same type, and nothing else.
    pub(crate) fn plain_table(&self) -> FieldTable {
        let mut table = FieldTable::default();
        table.insert(short("x-queue-type"), AMQPValue::LongString(LongString::from(self.type_name())));
        table
    }

    pub(crate) fn type_name(&self) -> &'static str {
        match self.kind {
            QueueKind::Classic => "classic",
            QueueKind::Quorum | QueueKind::Existing => "quorum",
        }
    }
}

/// Returns an AMQP text; [`check_short`] checked it before.
pub(crate) fn short(text: &str) -> ShortString {
    ShortString::try_new(text).unwrap_or_else(|_| ShortString::default())
}

/// Checks the AMQP limit of 255 bytes for a name.
pub(crate) fn check_short(option: &str, text: &str) -> Result<()> {
    match ShortString::try_new(text) {
        Ok(_) => Ok(()),
        Err(_) => {
            refuse(option, &format!("{} bytes are more than AMQP takes", text.len()), "use at most 255")
        }
    }
}
