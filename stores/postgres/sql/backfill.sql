-- name: backfill_add
-- Adds an entry for one handler to each of some messages. An entry with an order key waits: the code that arranges its
-- queue releases it.
-- $1 now bigint or NULL (server clock)
-- $2 handler smallint
-- $3 lane smallint[]: of the key (by message)
-- $4 digest bytea[]
-- $5 seq bigint[]
-- $6 handlers bytea[]: all of them
-- $7 order_key bytea[] or NULL
-- Index: primary key of oncebox_proof.
-- Lock order: the rows of oncebox_proof, which `backfill_hold` locked by number.
WITH moment AS MATERIALIZED (
    SELECT coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint) AS now
), message AS MATERIALIZED (
    SELECT * FROM unnest($3::int2[], $4::bytea[], $5::int8[], $6::bytea[], $7::bytea[])
         AS m (lane, digest, seq, handlers, order_key)
), noted AS (
    -- An array of one: the server can only look rows up, even if it believes that the table is empty.
    UPDATE oncebox_proof p SET handlers = m.handlers FROM message m
    WHERE p.lane = ANY (ARRAY[m.lane]) AND p.digest = m.digest
)
INSERT INTO oncebox_scheduled (seq, due, not_before, lane, handler, order_key)
-- An entry with an order key waits: the code that arranges its queue releases it.
SELECT m.seq, CASE WHEN m.order_key IS NULL THEN now ELSE 9223372036854775807 END, now, m.seq & 63, $2::int2, m.order_key
FROM moment, message m;

-- name: backfill_hold
-- Reads and locks the proofs of some messages. Skips those with erased content.
-- $1 seqs bigint[]: in order
-- $2 fingerprint bytea: of erased content
-- Index: oncebox_proof_seq.
-- Lock order: oncebox_proof by number, until the transaction ends.
SELECT p.seq, p.handlers
FROM unnest($1::int8[]) AS k (seq)
CROSS JOIN LATERAL (SELECT p.seq, p.handlers, p.fingerprint FROM oncebox_proof p WHERE p.seq = k.seq LIMIT 1 FOR UPDATE) p
WHERE p.fingerprint <> $2;

-- name: backfill_page
-- Reads a page of messages of all inboxes in the order of acceptance. The type is NULL if the message was dropped before
-- its key.
-- $1 seq bigint: to continue after
-- $2 limit bigint
-- Index: oncebox_proof_seq, primary key of oncebox_message.
SELECT p.seq, p.inbox, p.lane, p.digest, p.handlers, m.type, m.source, m.ordering_key, m.tenant, m.time
FROM (SELECT seq, inbox, lane, digest, handlers FROM oncebox_proof WHERE seq > $1 ORDER BY seq LIMIT $2) p
LEFT JOIN LATERAL (
    SELECT m.type, m.source, m.ordering_key, m.tenant, m.time FROM oncebox_message m WHERE m.lane = p.seq & 63 AND m.seq = p.seq LIMIT 1
) m ON true
ORDER BY p.seq;
