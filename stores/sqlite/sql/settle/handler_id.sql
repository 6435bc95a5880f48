-- The handler id of a key, for a completion inside a handler's own transaction.
SELECT h.id FROM oncebox_handler h JOIN oncebox_inbox i ON i.id = h.inbox WHERE i.name = ?1 AND h.key = ?2
