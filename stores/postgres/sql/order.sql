-- name: order_go
-- Resumes an order key that an operator paused: deletes its row.
-- $1 lane smallint
-- $2 handler smallint
-- $3 order_key bytea
-- Index: oncebox_poisoned_order.
-- Lock order: needs the lock of the queue (`order_lock`).
DELETE FROM oncebox_poisoned WHERE lane = $1 AND handler = $2 AND order_key = $3 AND in_line = 'blocks' AND seq < 68719476736;

-- name: order_hold
-- Makes the released entry of a queue wait again. Waits for a claim that is taking it: then it runs, and stays as it is.
-- $1 lane smallint
-- $2 handler smallint
-- $3 order_key bytea
-- Index: oncebox_entry_order, oncebox_scheduled_order.
-- Lock order: needs the lock of the queue (`order_lock`); then oncebox_entry, then oncebox_scheduled.
WITH back AS (
    DELETE FROM oncebox_entry WHERE lane = $1 AND handler = $2 AND order_key = $3 AND token IS NULL
    RETURNING seq, due, lane, handler, order_key
), waits AS (
    INSERT INTO oncebox_scheduled (seq, due, not_before, lane, handler, order_key)
    SELECT seq, 9223372036854775807, due, lane, handler, order_key FROM back
)
UPDATE oncebox_scheduled SET due = 9223372036854775807, not_before = due
WHERE lane = $1 AND handler = $2 AND order_key = $3 AND due <> 9223372036854775807;

-- name: order_lock
-- Takes the locks of order queues. Every change of a queue takes its lock first.
-- $1 class integer
-- $2 number integer[]: of each lock, in ascending order
-- Lock order: advisory locks in the order of $2, which all callers share, until the transaction ends.
SELECT pg_advisory_xact_lock($1, bucket) FROM unnest($2::int4[]) AS bucket;

-- name: order_release
-- Releases the first entry of each queue that may run, and parks entries behind one that parks: see the function
-- `order_release`. Returns the least number that became work, by lane and handler.
-- $1 now bigint or NULL (server clock)
-- $2 lane smallint[] (by queue)
-- $3 handler smallint[]
-- $4 order_key bytea[]
-- Index: oncebox_scheduled_order, oncebox_entry_order, oncebox_poisoned_order.
-- Lock order: needs the locks of the queues (`order_lock`), taken by an earlier statement.
SELECT lane, handler, seq FROM oncebox_release_v1($1, $2, $3, $4, false);

-- name: order_stop
-- Pauses an order key: inserts a row before all entries of its queue, which blocks them. Its number is in no partition,
-- and so less than that of any message. Returns no row if the key is already paused.
-- $1 now bigint or NULL (server clock)
-- $2 lane bigint
-- $3 handler smallint
-- $4 order_key bytea
-- $5 error text: the order key as JSON
-- Index: oncebox_poisoned_order.
-- Lock order: needs the lock of the queue (`order_lock`).
INSERT INTO oncebox_poisoned (seq, token, at, attempts, crashes, generation, lane, handler, reason, order_key, in_line, error)
SELECT ((nextval('oncebox_counter') & 1073741823) << 6) | $2::int8, 0,
       coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint), 0, 0, 0, $2, $3, 'paused', $4, 'blocks', $5
WHERE NOT EXISTS (
    SELECT 1 FROM oncebox_poisoned
    WHERE lane = $2 AND handler = $3 AND order_key = $4 AND in_line = 'blocks' AND seq < 68719476736
)
RETURNING seq;

-- name: order_unpark
-- Makes parked entries pending that no entry parks any more. They wait; `order_release` then releases the first.
-- $1 lane smallint[] (by queue)
-- $2 handler smallint[]
-- $3 order_key bytea[]
-- Index: oncebox_poisoned_order.
-- Lock order: needs the locks of the queues (`order_lock`).
WITH freed AS (
    DELETE FROM oncebox_poisoned p USING unnest($1::int2[], $2::int2[], $3::bytea[]) AS l (lane, handler, order_key)
    WHERE p.lane = l.lane AND p.handler = l.handler AND p.order_key = l.order_key AND p.in_line = 'parked' AND NOT EXISTS (
        SELECT 1 FROM oncebox_poisoned b
        WHERE b.lane = l.lane AND b.handler = l.handler AND b.order_key = l.order_key AND b.in_line = 'parks' AND b.seq < p.seq
    )
    RETURNING p.seq, p.not_before, p.token, p.attempts, p.crashes, p.generation, p.lane, p.handler, p.order_key, p.error
)
INSERT INTO oncebox_scheduled (seq, due, not_before, token, attempts, crashes, generation, lane, handler, order_key, error)
SELECT seq, 9223372036854775807, coalesce(not_before, 0), token, attempts, crashes, generation, lane, handler, order_key, error
FROM freed;

-- name: order_wait_turn
-- Makes released entries wait again if an older entry of their queue has arrived since: see the function `oncebox_wait_turn_v1`.
-- $1 lane smallint[] (by queue)
-- $2 handler smallint[]
-- $3 order_key bytea[]
-- Index: oncebox_entry_order, oncebox_scheduled_order.
-- Lock order: needs the locks of the queues (`order_lock`), taken by an earlier statement.
SELECT oncebox_wait_turn_v1($1, $2, $3);
