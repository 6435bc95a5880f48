//! Destination of a message, for its key.

use crate::message::Message;
use crate::name::{HandlerKey, InboxName};

/// Destination of a message: everything that its key may depend on besides the message.
#[derive(Clone, Copy, Debug)]
pub struct KeyContext<'a> {
    pub(super) inbox: &'a InboxName,
    pub(super) handler: Option<&'a HandlerKey>,
    adopted: Option<&'a str>,
}

impl<'a> KeyContext<'a> {
    /// Returns the destination `handler` in `inbox`.
    pub fn new(inbox: &'a InboxName, handler: Option<&'a HandlerKey>) -> Self {
        Self { inbox, handler, adopted: None }
    }

    /// Sets the tenant that has the keys of messages without a tenant.
    pub fn adopting(mut self, tenant: Option<&'a str>) -> Self {
        self.adopted = tenant;
        self
    }

    /// Returns the tenant that is part of a message's key.
    pub(super) fn tenant<'m>(&self, message: &'m Message) -> Option<&'m str> {
        message.tenant().filter(|tenant| self.adopted != Some(*tenant))
    }

    /// Returns the inbox.
    pub fn inbox(&self) -> &'a InboxName {
        self.inbox
    }

    /// Returns the handler of the key. `None` for a message without a handler.
    pub fn handler(&self) -> Option<&'a HandlerKey> {
        self.handler
    }
}
