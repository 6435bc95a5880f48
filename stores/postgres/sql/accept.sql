-- name: accept
-- Stores new messages and describes known ones, in one call of the function `oncebox_accept_v1`. Returns a row per message: place
-- in the batch, number (NULL if it raced or is stale), true if new, true if stale, and the known key's fingerprint,
-- handlers and age.
-- The whole way, for every message. `accept/fast_path.rs` chooses a faster statement for messages that need less.
-- $1 now bigint or NULL (server clock)
-- $2 inbox smallint
-- $3 place integer[] (by message)
-- $4 lane smallint[]: of the key
-- $5 home smallint[]: lane of the message
-- $6 digest bytea[]
-- $7 fingerprint bytea[]
-- $8 handlers bytea[]
-- $9 time bigint[]
-- $10 source text[]
-- $11 id bytea[]
-- $12 type text[]
-- $13 ordering_key bytea[]
-- $14 headers bytea[]
-- $15 payload bytea[]
-- $16 order_key bytea[]
-- $17 delay bigint[] in ms
-- $18 place integer[]: of its message (by entry)
-- $19 handler smallint[]
-- $20 tenant text[] (by message), NULL if no message has one
-- $21 class integer: of the advisory locks
-- $22 number integer[]: of each lock
-- $23 lane smallint[] (by queue)
-- $24 handler smallint[]
-- $25 order_key bytea[]
-- $26 asked integer[]: watermark group (by message)
-- $27 asked integer[] (by handler of a group)
-- $28 handler smallint[]: former ones included, or 0
-- Index: primary key of oncebox_proof.
-- Lock order: advisory locks in the order of $22, then oncebox_proof by (lane, digest).
SELECT place, seq, fresh, stale, fingerprint, handlers, age
FROM oncebox_accept_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28);

-- name: accept_plain
-- Stores messages that all go to the same handlers, at once and without order. Looks up the keys first, and fails if
-- another transaction inserts one at the same moment: then the caller runs `accept`. Returns one row: places and numbers
-- of the new messages; of the others the places, numbers, stale flags, and the fingerprints, handlers and ages of their
-- keys. NULL stands for a time or tenant that no message has, and for a source, type or headers that all messages share.
-- Why: it arranges no order queue and takes no advisory lock.
-- $1 now bigint or NULL (server clock)
-- $2 inbox smallint
-- $3 handlers bytea: as the proof stores them
-- $4 handlers smallint[]
-- $5 place integer[] (by message)
-- $6 lane smallint[]
-- $7 digest bytea[]
-- $8 fingerprint bytea[]
-- $9 time bigint[]
-- $10 source text[]
-- $11 id bytea[]
-- $12 type text[]
-- $13 headers bytea[]
-- $14 payload bytea[]
-- $15 tenant text[]
-- $16 source text: of all
-- $17 type text: of all
-- $18 headers bytea: of all
-- Index: primary key of oncebox_proof.
-- Lock order: oncebox_proof by (lane, digest).
WITH moment AS MATERIALIZED (
    SELECT coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint) AS now, partition_id, counted,
           NULL::bigint AS watermark
    FROM oncebox_meta WHERE one
), offered AS MATERIALIZED (
    SELECT o.*, m.now, coalesce(o.time <= m.watermark, false) AS stale,
           known.seq AS known, known.fingerprint AS known_fingerprint, known.handlers AS known_handlers,
           m.now - known.received_at AS known_for,
           CASE WHEN known.seq IS NULL
                THEN (m.partition_id << 36) | ((nextval('oncebox_counter') - m.counted) << 6) | o.lane END AS seq
    FROM moment m CROSS JOIN unnest($5::int4[], $6::int2[], $7::bytea[], $8::bytea[], $9::int8[], $10::text[], $11::bytea[],
                                    $12::text[], $13::bytea[], $14::bytea[], $15::text[])
         AS o (place, lane, digest, fingerprint, time, source, id, type, headers, payload, tenant)
    LEFT JOIN LATERAL (
        -- LIMIT keeps the planner from scanning the whole table.
        SELECT p.seq, p.received_at, p.fingerprint, p.handlers FROM oncebox_proof p WHERE p.lane = o.lane AND p.digest = o.digest LIMIT 1
    ) known ON true
), proved AS (
    INSERT INTO oncebox_proof (seq, received_at, lane, inbox, digest, fingerprint, handlers, tenant)
    SELECT seq, now, lane, $2, digest, fingerprint, $3, tenant FROM offered WHERE known IS NULL AND NOT stale
    -- Prevents a deadlock of two batches that share keys.
    ORDER BY lane, digest
), stored AS (
    INSERT INTO oncebox_message (seq, received_at, time, lane, inbox, digest, source, id, type, headers, payload, tenant)
    SELECT seq, now, time, lane, $2, digest, coalesce(source, $16), id, coalesce(type, $17), coalesce(headers, $18), payload, tenant
    FROM offered WHERE known IS NULL AND NOT stale
), due AS (
    INSERT INTO oncebox_entry (seq, due, lane, handler)
    SELECT seq, now, lane, unnest($4::int2[]) FROM offered WHERE known IS NULL AND NOT stale
)
SELECT array_agg(place) FILTER (WHERE fresh), array_agg(seq) FILTER (WHERE fresh),
       array_agg(place) FILTER (WHERE NOT fresh), array_agg(known) FILTER (WHERE NOT fresh), array_agg(stale) FILTER (WHERE NOT fresh),
       array_agg(known_fingerprint) FILTER (WHERE NOT fresh), array_agg(known_handlers) FILTER (WHERE NOT fresh),
       array_agg(known_for) FILTER (WHERE NOT fresh)
FROM (SELECT *, known IS NULL AND NOT stale AS fresh FROM offered) o;

-- name: accept_plain_by_time
-- The same as `accept_plain` for messages with a time: those at or before the watermark of their handlers are stale.
-- $1 now bigint or NULL (server clock)
-- $2 inbox smallint
-- $3 handlers bytea: as the proof stores them
-- $4 handlers smallint[]
-- $5 place integer[] (by message)
-- $6 lane smallint[]
-- $7 digest bytea[]
-- $8 fingerprint bytea[]
-- $9 time bigint[]
-- $10 source text[]
-- $11 id bytea[]
-- $12 type text[]
-- $13 headers bytea[]
-- $14 payload bytea[]
-- $15 tenant text[]
-- $16 source text: of all
-- $17 type text: of all
-- $18 headers bytea: of all
-- $19 handlers smallint[]: former ones included, or 0 for none
-- Index: primary keys of oncebox_proof, oncebox_handler and oncebox_inbox.
-- Lock order: oncebox_proof by (lane, digest).
WITH moment AS MATERIALIZED (
    SELECT coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint) AS now, partition_id, counted,
           (
               SELECT max(coalesce(h.watermark, i.watermark))
               FROM unnest($19::int2[]) AS f (handler) LEFT JOIN oncebox_handler h ON h.id = f.handler
               CROSS JOIN oncebox_inbox i WHERE i.id = $2
           ) AS watermark
    FROM oncebox_meta WHERE one
), offered AS MATERIALIZED (
    SELECT o.*, m.now, coalesce(o.time <= m.watermark, false) AS stale,
           known.seq AS known, known.fingerprint AS known_fingerprint, known.handlers AS known_handlers,
           m.now - known.received_at AS known_for,
           CASE WHEN known.seq IS NULL
                THEN (m.partition_id << 36) | ((nextval('oncebox_counter') - m.counted) << 6) | o.lane END AS seq
    FROM moment m CROSS JOIN unnest($5::int4[], $6::int2[], $7::bytea[], $8::bytea[], $9::int8[], $10::text[], $11::bytea[],
                                    $12::text[], $13::bytea[], $14::bytea[], $15::text[])
         AS o (place, lane, digest, fingerprint, time, source, id, type, headers, payload, tenant)
    LEFT JOIN LATERAL (
        -- LIMIT keeps the planner from scanning the whole table.
        SELECT p.seq, p.received_at, p.fingerprint, p.handlers FROM oncebox_proof p WHERE p.lane = o.lane AND p.digest = o.digest LIMIT 1
    ) known ON true
), proved AS (
    INSERT INTO oncebox_proof (seq, received_at, lane, inbox, digest, fingerprint, handlers, tenant)
    SELECT seq, now, lane, $2, digest, fingerprint, $3, tenant FROM offered WHERE known IS NULL AND NOT stale
    -- Prevents a deadlock of two batches that share keys.
    ORDER BY lane, digest
), stored AS (
    INSERT INTO oncebox_message (seq, received_at, time, lane, inbox, digest, source, id, type, headers, payload, tenant)
    SELECT seq, now, time, lane, $2, digest, coalesce(source, $16), id, coalesce(type, $17), coalesce(headers, $18), payload, tenant
    FROM offered WHERE known IS NULL AND NOT stale
), due AS (
    INSERT INTO oncebox_entry (seq, due, lane, handler)
    SELECT seq, now, lane, unnest($4::int2[]) FROM offered WHERE known IS NULL AND NOT stale
)
SELECT array_agg(place) FILTER (WHERE fresh), array_agg(seq) FILTER (WHERE fresh),
       array_agg(place) FILTER (WHERE NOT fresh), array_agg(known) FILTER (WHERE NOT fresh), array_agg(stale) FILTER (WHERE NOT fresh),
       array_agg(known_fingerprint) FILTER (WHERE NOT fresh), array_agg(known_handlers) FILTER (WHERE NOT fresh),
       array_agg(known_for) FILTER (WHERE NOT fresh)
FROM (SELECT *, known IS NULL AND NOT stale AS fresh FROM offered) o;

-- name: accept_new
-- Stores messages that are all new, in one call of the function `oncebox_accept_new_v1`. Returns their places and numbers, or no
-- row if a key is known.
-- Why: without a lookup, a batch is stored a tenth to a seventh faster (ADR 16).
-- $1 now bigint or NULL (server clock)
-- $2 inbox smallint
-- $3 handlers bytea: as the proof stores them
-- $4 handlers smallint[]
-- $5 place integer[] (by message)
-- $6 lane smallint[]
-- $7 digest bytea[]
-- $8 fingerprint bytea[]
-- $9 time bigint[]
-- $10 source text[]
-- $11 id bytea[]
-- $12 type text[]
-- $13 headers bytea[]
-- $14 payload bytea[]
-- $15 tenant text[]
-- $16 source text: of all
-- $17 type text: of all
-- $18 headers bytea: of all
-- Index: primary key of oncebox_proof.
-- Lock order: oncebox_proof by (lane, digest).
SELECT places, seqs
FROM oncebox_accept_new_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18);

-- name: accept_one
-- Stores one plain message without a time, which is never stale. A batch join is not needed, so this is the cheapest way.
-- Returns the same columns as `accept`. Looks up the key first, and fails if another transaction inserts it at the same
-- moment: then the caller runs `accept`.
-- $1 now bigint or NULL (server clock)
-- $2 inbox smallint
-- $3 handlers bytea: as the proof stores them
-- $4 handlers smallint[]
-- $5 place integer
-- $6 lane smallint
-- $7 digest bytea
-- $8 fingerprint bytea
-- $9 time bigint
-- $10 source text
-- $11 id bytea
-- $12 type text
-- $13 headers bytea
-- $14 payload bytea
-- $15 tenant text
-- Index: primary key of oncebox_proof.
-- Lock order: the row of oncebox_proof.
WITH offered AS MATERIALIZED (
    SELECT coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint) AS now,
           coalesce($9::bigint <= NULL::bigint, false) AS stale,
           known.seq AS known, known.received_at AS known_at, known.fingerprint, known.handlers,
           CASE WHEN known.seq IS NULL
                THEN (partition_id << 36) | ((nextval('oncebox_counter') - counted) << 6) | $6::bigint END AS seq
    FROM oncebox_meta LEFT JOIN LATERAL (
        -- LIMIT keeps the planner from scanning the whole table.
        SELECT p.seq, p.received_at, p.fingerprint, p.handlers FROM oncebox_proof p WHERE p.lane = $6 AND p.digest = $7 LIMIT 1
    ) known ON true
    WHERE one
), proved AS (
    INSERT INTO oncebox_proof (seq, received_at, lane, inbox, digest, fingerprint, handlers, tenant)
    SELECT seq, now, $6, $2, $7, $8, $3, $15 FROM offered WHERE known IS NULL AND NOT stale
), stored AS (
    INSERT INTO oncebox_message (seq, received_at, time, lane, inbox, digest, source, id, type, headers, payload, tenant)
    SELECT seq, now, $9, $6, $2, $7, $10, $11, $12, $13, $14, $15 FROM offered WHERE known IS NULL AND NOT stale
), due AS (
    INSERT INTO oncebox_entry (seq, due, lane, handler)
    SELECT seq, now, $6, unnest($4::int2[]) FROM offered WHERE known IS NULL AND NOT stale
)
SELECT $5::int4, CASE WHEN known IS NULL AND stale THEN NULL ELSE coalesce(known, seq) END, known IS NULL AND NOT stale, stale,
       fingerprint, handlers, now - known_at
FROM offered;

-- name: accept_one_by_time
-- The same as `accept_one` for messages with a time: those at or before the watermark of their handlers are stale.
-- $1 now bigint or NULL (server clock)
-- $2 inbox smallint
-- $3 handlers bytea: as the proof stores them
-- $4 handlers smallint[]
-- $5 place integer
-- $6 lane smallint
-- $7 digest bytea
-- $8 fingerprint bytea
-- $9 time bigint
-- $10 source text
-- $11 id bytea
-- $12 type text
-- $13 headers bytea
-- $14 payload bytea
-- $15 tenant text
-- $16 handlers smallint[]: former ones included, or 0 for none
-- Index: primary keys of oncebox_proof, oncebox_handler and oncebox_inbox.
-- Lock order: the row of oncebox_proof.
WITH offered AS MATERIALIZED (
    SELECT coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint) AS now,
           coalesce($9::bigint <= (
               SELECT max(coalesce(h.watermark, i.watermark))
               FROM unnest($16::int2[]) AS f (handler) LEFT JOIN oncebox_handler h ON h.id = f.handler
               CROSS JOIN oncebox_inbox i WHERE i.id = $2
           ), false) AS stale,
           known.seq AS known, known.received_at AS known_at, known.fingerprint, known.handlers,
           CASE WHEN known.seq IS NULL
                THEN (partition_id << 36) | ((nextval('oncebox_counter') - counted) << 6) | $6::bigint END AS seq
    FROM oncebox_meta LEFT JOIN LATERAL (
        -- LIMIT keeps the planner from scanning the whole table.
        SELECT p.seq, p.received_at, p.fingerprint, p.handlers FROM oncebox_proof p WHERE p.lane = $6 AND p.digest = $7 LIMIT 1
    ) known ON true
    WHERE one
), proved AS (
    INSERT INTO oncebox_proof (seq, received_at, lane, inbox, digest, fingerprint, handlers, tenant)
    SELECT seq, now, $6, $2, $7, $8, $3, $15 FROM offered WHERE known IS NULL AND NOT stale
), stored AS (
    INSERT INTO oncebox_message (seq, received_at, time, lane, inbox, digest, source, id, type, headers, payload, tenant)
    SELECT seq, now, $9, $6, $2, $7, $10, $11, $12, $13, $14, $15 FROM offered WHERE known IS NULL AND NOT stale
), due AS (
    INSERT INTO oncebox_entry (seq, due, lane, handler)
    SELECT seq, now, $6, unnest($4::int2[]) FROM offered WHERE known IS NULL AND NOT stale
)
SELECT $5::int4, CASE WHEN known IS NULL AND stale THEN NULL ELSE coalesce(known, seq) END, known IS NULL AND NOT stale, stale,
       fingerprint, handlers, now - known_at
FROM offered;

-- name: accept_add_handlers
-- Adds handlers to a known message: updates its proof and inserts their entries.
-- $1 now bigint or NULL (server clock)
-- $2 lane smallint: of the key
-- $3 digest bytea
-- $4 seq bigint
-- $5 handlers bytea: all of them
-- $6 handlers smallint[]: to add
-- $7 order_key bytea or NULL
-- $8 delay bigint in ms
-- Index: primary key of oncebox_proof.
-- Lock order: the row of oncebox_proof. `accept_known` locks it first.
WITH moment AS MATERIALIZED (
    SELECT coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint) AS now
), added AS (
    UPDATE oncebox_proof SET handlers = $5 WHERE lane = $2 AND digest = $3
)
INSERT INTO oncebox_scheduled (seq, due, not_before, lane, handler, order_key)
SELECT $4, CASE WHEN $7::bytea IS NULL THEN now + $8 ELSE 9223372036854775807 END, now + $8, $4 & 63, handler, $7
FROM moment, unnest($6::int2[]) AS e (handler);

-- name: accept_forgotten
-- Reads the time up to which messages of some handlers may have been swept.
-- $1 handlers smallint[]
-- Index: primary key of oncebox_handler.
SELECT max(watermark) FROM oncebox_handler WHERE id = ANY ($1);

-- name: accept_known
-- Reads the handlers, age and fingerprint of a known key. Returns no row if the key has another number by now.
-- $1 lane smallint
-- $2 digest bytea
-- $3 now bigint or NULL (server clock)
-- $4 seq bigint
-- Index: primary key of oncebox_proof.
-- Lock order: the row of oncebox_proof, until the transaction ends.
SELECT handlers, coalesce($3, (extract(epoch FROM statement_timestamp()) * 1000)::bigint) - received_at, fingerprint
FROM oncebox_proof WHERE lane = $1 AND digest = $2 AND seq = $4 FOR UPDATE;

-- name: accept_message_again
-- Stores a message again whose payload was dropped before its key.
-- $1 seq bigint
-- $2 inbox smallint
-- $3 digest bytea
-- $4 time bigint
-- $5 source text
-- $6 id bytea
-- $7 type text
-- $8 ordering_key bytea
-- $9 headers bytea
-- $10 payload bytea
-- $11 tenant text
-- $12 lane smallint: of the key
-- Index: primary keys of oncebox_proof and oncebox_message.
INSERT INTO oncebox_message (seq, received_at, time, lane, inbox, digest, source, id, type, ordering_key, headers, payload, tenant)
SELECT $1, p.received_at, $4, $1 & 63, $2, $3, $5, $6, $7, $8, $9, $10, $11
FROM oncebox_proof p WHERE p.lane = $12 AND p.digest = $3
ON CONFLICT (lane, seq) DO NOTHING;

-- name: accept_quarantine
-- Quarantines a message, once per payload and key. Skips it if the content of that key was erased. Waits for an erasure
-- that has not ended.
-- $1 now bigint or NULL (server clock)
-- $2 inbox smallint
-- $3 reason text
-- $4 digest bytea
-- $5 fingerprint bytea
-- $6 time bigint
-- $7 source text
-- $8 id bytea
-- $9 type text
-- $10 ordering_key bytea
-- $11 headers bytea
-- $12 payload bytea
-- $13 tenant text
-- $14 lane smallint: of the key
-- $15 fingerprint bytea: of erased content
-- Index: primary key of oncebox_proof; unique (digest, fingerprint) of oncebox_quarantine.
-- Lock order: the row of oncebox_proof, shared; then oncebox_quarantine.
WITH known AS MATERIALIZED (
    SELECT fingerprint FROM oncebox_proof WHERE lane = $14 AND digest = $4 FOR SHARE
)
INSERT INTO oncebox_quarantine (received_at, inbox, reason, digest, fingerprint, time, source, message_id, type, ordering_key, headers, payload,
                    tenant)
SELECT coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint), $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13
WHERE NOT EXISTS (SELECT 1 FROM known WHERE fingerprint = $15)
ON CONFLICT (digest, fingerprint) DO NOTHING;

-- name: accept_stored_order
-- Reads the order of a known message as it was stored. The source is NULL if the message was dropped before its key.
-- $1 lane smallint
-- $2 digest bytea
-- Index: primary keys of oncebox_proof and oncebox_message.
SELECT p.seq, m.source, m.ordering_key, m.tenant
FROM oncebox_proof p LEFT JOIN LATERAL (
    SELECT m.source, m.ordering_key, m.tenant FROM oncebox_message m WHERE m.lane = p.seq & 63 AND m.seq = p.seq LIMIT 1
) m ON true
WHERE p.lane = $1 AND p.digest = $2;

-- name: accept_open
-- Begins an accept in a transaction of a caller: compares the tables with those of the store, and locks the minute of its
-- start. Sweeps see the lock, and do not pass the numbers of the transaction. Returns true if the tables are those of the
-- store.
-- $1 class integer: of the locks of open transactions
-- $2 now bigint or NULL (server clock)
-- $3 incarnation text: of the tables
-- Lock order: the advisory lock of the minute, shared, which no statement takes alone; until the transaction ends.
SELECT (SELECT i.incarnation = $3::text::uuid FROM oncebox_meta i WHERE i.one),
       pg_advisory_xact_lock_shared($1, (coalesce($2, (extract(epoch FROM statement_timestamp()) * 1000)::bigint) / 60000)::int4);

-- name: accept_unordered
-- Adds entries without an order to messages that the same transaction stored with one: their handlers ignore it. `accept`
-- added the other entries.
-- $1 now bigint or NULL (server clock)
-- $2 seq bigint[] (by entry)
-- $3 handler smallint[]
-- $4 delay bigint[] in ms
-- Index: none.
-- Lock order: none. No other transaction sees the messages yet.
WITH moment AS MATERIALIZED (
    SELECT coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint) AS now
)
INSERT INTO oncebox_scheduled (seq, due, not_before, lane, handler)
SELECT e.seq, now + e.delay, now + e.delay, e.seq & 63, e.handler
FROM moment, unnest($2::int8[], $3::int2[], $4::int8[]) AS e (seq, handler, delay);
