-- name: accept_add_handlers
-- Stores the handlers of a known message.
-- ?1 seq
-- ?2 handlers, all of them
-- Index: primary key of oncebox_message.
UPDATE oncebox_message SET handlers = ?2 WHERE seq = ?1;

-- name: accept_entry
-- Inserts an entry of a new message.
-- ?1 handler
-- ?2 due
-- ?3 seq
INSERT INTO oncebox_entry (handler, due, seq) VALUES (?1, ?2, ?3);

-- name: accept_known
-- Reads the fingerprint, handlers and receive time of a known message.
-- ?1 seq
-- Index: primary key of oncebox_message.
SELECT fingerprint, handlers, received_at FROM oncebox_message WHERE seq = ?1;

-- name: accept_message
-- Stores a new message.
-- ?1 seq
-- ?2 inbox
-- ?3 digest
-- ?4 fingerprint
-- ?5 handlers
-- ?6 received_at
-- ?7 time
-- ?8 tenant
-- ?9 source
-- ?10 id
-- ?11 type
-- ?12 ordering_key
-- ?13 headers
-- ?14 payload
INSERT INTO oncebox_message
    (seq, inbox, digest, fingerprint, handlers, received_at, time, tenant, source, id, type, ordering_key, headers,
     payload)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14);

-- name: accept_order
-- Reads the order of a stored message: of several deliveries, the first one decides.
-- ?1 seq
-- Index: primary key of oncebox_message.
SELECT tenant, source, ordering_key FROM oncebox_message WHERE seq = ?1;

-- name: accept_quarantine
-- Quarantines a message, once per payload and key: repeated redeliveries must not fill the table.
-- ?1 inbox
-- ?2 digest
-- ?3 fingerprint
-- ?4 reason
-- ?5 received_at
-- ?6 time
-- ?7 tenant
-- ?8 source
-- ?9 id
-- ?10 type
-- ?11 ordering_key
-- ?12 headers
-- ?13 payload
-- Index: unique (digest, fingerprint) of oncebox_quarantine.
INSERT INTO oncebox_quarantine
    (inbox, digest, fingerprint, reason, received_at, time, tenant, source, message_id, type, ordering_key, headers,
     payload)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)
ON CONFLICT (digest, fingerprint) DO NOTHING;

-- name: accept_begin_part
-- Begins the part of one call in a transaction of the caller.
SAVEPOINT oncebox_accept;

-- name: accept_end_part
-- Ends the part of a call, and keeps what it wrote.
RELEASE oncebox_accept;

-- name: accept_take_lock
-- Takes the write lock for a transaction that may not have it, so that everything read from now on stays true. Fails at
-- once if the transaction read an older state.
-- Index: none: the table has one row.
UPDATE oncebox_counter SET seq = seq;

-- name: accept_undo_part
-- Undoes the part of a call that failed. The transaction of the caller stays open.
ROLLBACK TO oncebox_accept;
