//! Which part of an AMQP message tells what.

/// A part of an AMQP message, or a text of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Field {
    /// The property `message-id`.
    MessageId,
    /// The property `correlation-id`.
    CorrelationId,
    /// The property `type`.
    Type,
    /// The property `app-id`.
    AppId,
    /// The property `user-id`, which the broker lets only be what the publisher has logged in as.
    UserId,
    /// The routing key that it was published with.
    RoutingKey,
    /// The exchange that it was published to.
    Exchange,
    /// The header of this name; case does not matter.
    Header(String),
    /// The same for every message.
    Fixed(String),
}

impl Field {
    /// The header of this name.
    pub fn header(name: impl Into<String>) -> Self {
        Self::Header(name.into())
    }

    /// The same for every message.
    pub fn fixed(text: impl Into<String>) -> Self {
        Self::Fixed(text.into())
    }
}
