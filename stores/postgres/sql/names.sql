-- name: names_add_handler
-- Adds a handler and returns its id.
-- $1 inbox smallint
-- $2 key text: the newest one
-- $3 origin text: the first key
-- Lock order: `names_lock` was taken before.
INSERT INTO oncebox_handler (inbox, key, origin) VALUES ($1, $2, $3) RETURNING id;

-- name: names_add_inbox
-- Adds an inbox, unless it exists.
-- $1 name text
-- Index: unique (name) of oncebox_inbox.
INSERT INTO oncebox_inbox (name, watermark) VALUES ($1, -9223372036854775808) ON CONFLICT (name) DO NOTHING;

-- name: names_add_keys
-- Adds keys of a handler.
-- $1 inbox smallint
-- $2 keys text[]
-- $3 handler smallint
-- Lock order: `names_lock` was taken before.
INSERT INTO oncebox_handler_key (inbox, key, handler) SELECT $1, k.key, $3 FROM unnest($2::text[]) AS k (key);

-- name: names_group
-- Lists the handlers that are one with some handlers. Runs while the key of the message is locked, because a process's
-- cache may be out of date.
-- $1 handlers smallint[]
-- Index: primary key of oncebox_handler.
SELECT h.id FROM oncebox_handler h
WHERE coalesce(h.same_as, h.id) IN (SELECT coalesce(o.same_as, o.id) FROM oncebox_handler o WHERE o.id = ANY ($1::int2[]));

-- name: names_handlers
-- Lists all keys of all handlers, a row per key.
-- Index: none: the tables are small.
SELECT h.id, h.inbox, h.key, h.origin, coalesce(h.same_as, h.id), k.key
FROM oncebox_handler_key k JOIN oncebox_handler h ON h.id = k.handler;

-- name: names_inboxes
-- Lists all inboxes.
-- Index: none: the table is small.
SELECT id, name FROM oncebox_inbox;

-- name: names_join
-- Joins handlers that turned out to be one, with all handlers that each of them was joined with before. They share the
-- latest watermark.
-- $1 handlers smallint[]
-- Index: primary key of oncebox_handler.
-- Lock order: oncebox_handler by id.
WITH joined AS MATERIALIZED (
    SELECT h.id, h.watermark FROM oncebox_handler h
    WHERE coalesce(h.same_as, h.id) IN (SELECT coalesce(o.same_as, o.id) FROM oncebox_handler o WHERE o.id = ANY ($1::int2[]))
    ORDER BY h.id FOR NO KEY UPDATE
)
UPDATE oncebox_handler h SET same_as = nullif((SELECT min(id) FROM joined), h.id), watermark = (SELECT max(watermark) FROM joined)
WHERE h.id IN (SELECT id FROM joined);

-- name: names_known
-- Reads which of some keys of an inbox are known.
-- $1 inbox smallint
-- $2 keys text[]
-- Index: primary key of oncebox_handler_key.
SELECT key, handler FROM oncebox_handler_key WHERE inbox = $1 AND key = ANY ($2::text[]);

-- name: names_lock
-- Lets one process at a time link keys. Readers do not wait.
-- Lock order: oncebox_handler_key as a whole, until the transaction ends.
LOCK TABLE oncebox_handler_key IN SHARE ROW EXCLUSIVE MODE;

-- name: names_rename
-- Stores the newest key of a handler.
-- $1 handler smallint
-- $2 key text
-- Index: primary key of oncebox_handler.
-- Lock order: the row of oncebox_handler.
UPDATE oncebox_handler SET key = $2 WHERE id = $1;
