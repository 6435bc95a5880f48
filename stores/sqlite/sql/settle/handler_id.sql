-- The handler id of a key, for a completion inside a handler's own transaction.
SELECT k.handler FROM oncebox_handler_key k JOIN oncebox_inbox i ON i.id = k.inbox WHERE i.name = ?1 AND k.key = ?2
