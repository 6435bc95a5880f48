//! Mapping from AMQP properties to message fields. Tests: message.rs and tests/deliveries.rs.

/// A part of an AMQP message, or a fixed text.
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
    /// The property `user-id`. The broker refuses any value but the publisher's login.
    UserId,
    /// The routing key of the publisher.
    RoutingKey,
    /// The exchange of the publisher.
    Exchange,
    /// The header of this name, ignoring case.
    Header(String),
    /// One text for every message.
    Fixed(String),
}

impl Field {
    /// Returns the header of this name.
    pub fn header(name: impl Into<String>) -> Self {
        Self::Header(name.into())
    }

    /// Returns one text for every message.
    pub fn fixed(text: impl Into<String>) -> Self {
        Self::Fixed(text.into())
    }
}
