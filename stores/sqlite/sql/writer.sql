-- name: writer_add_handler
-- Adds a handler and returns its id.
-- ?1 inbox
-- ?2 key, the newest one
-- ?3 origin, the first key
INSERT INTO oncebox_handler (inbox, key, origin) VALUES (?1, ?2, ?3) RETURNING id;

-- name: writer_add_inbox
-- Adds an inbox and returns its id.
-- ?1 name
-- ?2 watermark
INSERT INTO oncebox_inbox (name, watermark) VALUES (?1, ?2) RETURNING id;

-- name: writer_add_key
-- Adds a key of a handler.
-- ?1 inbox
-- ?2 key
-- ?3 handler
INSERT INTO oncebox_handler_key (inbox, key, handler) VALUES (?1, ?2, ?3);

-- name: writer_counters
-- Reads the counters of the store.
-- Index: none: the table has one row.
SELECT seq, token, merged, pass_upto, pass_slice, proofs, swept FROM oncebox_counter;

-- name: writer_handlers
-- Lists all keys of all handlers, a row per key.
-- Index: none: the tables are small.
SELECT h.id, h.inbox, h.key, h.origin, coalesce(h.same_as, h.id), h.paused, h.watermark, k.key
FROM oncebox_handler_key k JOIN oncebox_handler h ON h.id = k.handler;

-- name: writer_inboxes
-- Lists all inboxes.
-- Index: none: the table is small.
SELECT id, name, watermark FROM oncebox_inbox;

-- name: writer_join_handler
-- Joins a handler with another one that it turned out to be.
-- ?1 handler
-- ?2 handler that it joins
-- Index: primary key of oncebox_handler.
UPDATE oncebox_handler SET same_as = ?2 WHERE id = ?1;

-- name: writer_rename_handler
-- Stores the newest key of a handler.
-- ?1 handler
-- ?2 key
-- Index: primary key of oncebox_handler.
UPDATE oncebox_handler SET key = ?2 WHERE id = ?1;

-- name: writer_save_counters
-- Stores the counters of the store.
-- ?1 seq
-- ?2 token
-- ?3 merged
-- ?4 pass_upto
-- ?5 pass_slice
-- ?6 proofs
-- ?7 swept
-- Index: none: the table has one row.
UPDATE oncebox_counter
SET seq = ?1, token = ?2, merged = ?3, pass_upto = ?4, pass_slice = ?5, proofs = ?6, swept = ?7;

-- name: writer_schema_add
-- Records an applied migration.
-- ?1 version
-- ?2 name
-- ?3 now
INSERT INTO oncebox_schema (version, name, applied_at) VALUES (?1, ?2, ?3);

-- name: writer_schema_create
-- Creates the table of applied migrations.
CREATE TABLE IF NOT EXISTS oncebox_schema (version INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_at INTEGER NOT NULL) STRICT;

-- name: writer_schema_table
-- Returns 1 if the table of applied migrations exists, else 0.
SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'oncebox_schema';

-- name: writer_schema_version
-- Reads the latest applied migration. The caller checks with `writer_schema_table` that the table exists.
SELECT max(version) FROM oncebox_schema;

-- name: writer_set_handler_watermark
-- Raises the watermark of a handler.
-- ?1 handler
-- ?2 watermark
-- Index: primary key of oncebox_handler.
UPDATE oncebox_handler SET watermark = max(watermark, ?2) WHERE id = ?1;

-- name: writer_set_watermark
-- Raises the watermark of an inbox.
-- ?1 inbox
-- ?2 watermark
-- Index: primary key of oncebox_inbox.
UPDATE oncebox_inbox SET watermark = max(watermark, ?2) WHERE id = ?1;
