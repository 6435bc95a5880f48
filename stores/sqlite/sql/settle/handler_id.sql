-- Reads the handler of a key, for a completion inside a handler's own transaction.
-- ?1 inbox, by name
-- ?2 handler key
-- Index: primary key of oncebox_handler_key.
SELECT k.handler FROM oncebox_handler_key k JOIN oncebox_inbox i ON i.id = k.inbox WHERE i.name = ?1 AND k.key = ?2
