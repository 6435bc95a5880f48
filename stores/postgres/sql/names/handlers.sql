-- Lists all keys of all handlers, a row per key.
-- Index: none: the tables are small.
SELECT h.id, h.inbox, h.key, h.origin, coalesce(h.same_as, h.id), k.key
FROM oncebox_handler_key k JOIN oncebox_handler h ON h.id = k.handler
