-- name: partition_drop
-- Drops a partition, and keeps some of its messages: see the function `oncebox_drop_partition_v1`.
-- $1 partition bigint
-- $2 kept bigint[]: numbers
-- Lock order: oncebox_message and oncebox_outcome exclusively, after a wait of at most `partition_patience`.
SELECT oncebox_drop_partition_v1($1, $2);

-- name: partition_drop_payload
-- Drops the messages of a partition, and keeps some: see the function `oncebox_drop_payload_v1`.
-- $1 partition bigint
-- $2 kept bigint[]: numbers
-- Lock order: oncebox_message exclusively, after a wait of at most `partition_patience`.
SELECT oncebox_drop_payload_v1($1, $2);

-- name: partition_handlers
-- Lists the ids of all handlers.
-- Index: none: the table is small.
SELECT id FROM oncebox_handler;

-- name: partition_list
-- Lists partitions that get no more messages.
-- $1 partition bigint: of new messages
-- Index: primary key of oncebox_partition.
SELECT id, ended_at, payload FROM oncebox_partition WHERE id < $1 AND ended_at IS NOT NULL ORDER BY id;

-- name: partition_lock
-- Lets one process at a time maintain partitions. Returns false if another one does.
-- $1 lock bigint: number
-- Lock order: the advisory lock, without waiting.
SELECT pg_try_advisory_xact_lock($1);

-- name: partition_lock_messages
-- Keeps other transactions from the messages while a partition is dropped.
-- Lock order: oncebox_message exclusively, until the transaction ends.
LOCK TABLE oncebox_message IN ACCESS EXCLUSIVE MODE;

-- name: partition_make
-- Creates a partition: see the function `oncebox_make_partition_v1`.
-- $1 partition bigint
SELECT oncebox_make_partition_v1($1);

-- name: partition_patience
-- Limits how long a drop waits for other users of the tables: all others wait behind it.
SET LOCAL lock_timeout = '250ms';

-- name: partition_proofs
-- Lists messages of a partition that are still remembered.
-- $1 first bigint: number
-- $2 last bigint: number
-- $3 limit bigint
-- Index: oncebox_proof_seq.
SELECT seq FROM oncebox_proof WHERE seq BETWEEN $1 AND $2 ORDER BY seq LIMIT $3;

-- name: partition_rotate
-- Sends new messages to the next partition.
-- $1 partition bigint: so far
-- $2 now bigint
-- Lock order: the rows of oncebox_partition and oncebox_meta.
WITH ended AS (
    UPDATE oncebox_partition SET ended_at = $2 WHERE id = $1
)
UPDATE oncebox_meta SET partition_id = $1 + 1, counted = (SELECT last_value FROM oncebox_counter), started_at = $2 WHERE partition_id = $1;

-- name: partition_start
-- Notes the time of the first sweep.
-- $1 now bigint
-- Lock order: the row of oncebox_meta.
UPDATE oncebox_meta SET started_at = $1 WHERE started_at IS NULL;

-- name: partition_state
-- Reads the partition of new messages, its start, its approximate number of messages, and the time.
-- $1 now bigint or NULL (server clock)
SELECT m.partition_id, m.started_at, c.last_value - m.counted,
       coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint)
FROM oncebox_meta m, oncebox_counter c;

-- name: partition_unfinished
-- Lists messages of a partition with pending, running or poisoned entries.
-- $1 lanes smallint[]: all of them
-- $2 handlers smallint[]: all of them
-- $3 first bigint: number
-- $4 last bigint: number
-- $5 limit bigint
-- Index: primary keys of oncebox_entry, oncebox_scheduled and oncebox_poisoned.
SELECT DISTINCT seq FROM (
    SELECT e.seq FROM oncebox_entry e WHERE e.lane = ANY ($1::int2[]) AND e.handler = ANY ($2::int2[]) AND e.seq BETWEEN $3 AND $4
    UNION ALL SELECT e.seq FROM oncebox_scheduled e WHERE e.lane = ANY ($1::int2[]) AND e.seq BETWEEN $3 AND $4
    UNION ALL SELECT e.seq FROM oncebox_poisoned e WHERE e.lane = ANY ($1::int2[]) AND e.seq BETWEEN $3 AND $4
) e LIMIT $5;
