-- name: history_ahead
-- Finds the entry that an entry of an order queue waits for: a running one, or else the first that blocks it.
-- $1 seq bigint
-- $2 handler smallint
-- $3 order_key bytea
-- Index: oncebox_entry_order, oncebox_poisoned_order, oncebox_scheduled_order, oncebox_proof_seq.
SELECT a.seq, a.status, p.digest
FROM (
    SELECT e.seq, CASE WHEN e.token IS NULL THEN 'pending' ELSE 'running' END AS status,
           CASE WHEN e.token IS NULL THEN 1 ELSE 0 END AS place
    FROM oncebox_entry e
    WHERE e.lane = $1 & 63 AND e.handler = $2 AND e.order_key = $3 AND e.seq <> $1 AND (e.token IS NOT NULL OR e.seq < $1)
    UNION ALL (
        SELECT e.seq, 'poisoned', 1 FROM oncebox_poisoned e
        WHERE e.lane = $1 & 63 AND e.handler = $2 AND e.order_key = $3 AND e.in_line IN ('blocks', 'parks') AND e.seq < $1
          -- The row of a paused order key has no message.
          AND e.seq >= 68719476736
        ORDER BY e.seq LIMIT 1
    ) UNION ALL (
        SELECT e.seq, 'pending', 1 FROM oncebox_scheduled e
        WHERE e.lane = $1 & 63 AND e.handler = $2 AND e.order_key = $3 AND e.seq < $1
        ORDER BY e.seq LIMIT 1
    )
) a JOIN oncebox_proof p ON p.seq = a.seq
ORDER BY a.place, a.seq LIMIT 1;

-- name: history_attempts
-- Lists the failed attempts of a message, oldest first.
-- $1 seq bigint
-- Index: primary key of oncebox_attempt.
SELECT h.key, a.generation, a.at, a.event, a.attempts, a.crashes, a.error, a.claim_id, h.origin
FROM oncebox_attempt a JOIN oncebox_handler h ON h.id = a.handler WHERE a.lane = $1 & 63 AND a.seq = $1 ORDER BY a.at, a.token;

-- name: history_count_duplicates
-- Adds to the duplicate counts of messages. Skips messages that were swept.
-- $1 seq bigint[] (by message)
-- $2 count bigint[]
-- $3 first bigint[]: time
-- $4 last bigint[]: time
-- $5 varied bigint[]: count with another payload
-- Index: oncebox_proof_seq, primary key of oncebox_duplicate.
-- Lock order: oncebox_duplicate by (lane, seq), as sweeps do.
INSERT INTO oncebox_duplicate AS known (seq, count, first, last, lane, varied)
SELECT n.seq, n.count, n.first, n.last, n.seq & 63, n.varied
FROM unnest($1::int8[], $2::int8[], $3::int8[], $4::int8[], $5::int8[]) AS n (seq, count, first, last, varied)
WHERE (SELECT p.seq FROM oncebox_proof p WHERE p.seq = n.seq LIMIT 1) IS NOT NULL
-- As they lie in the index: sweeps remove them in this order.
ORDER BY n.seq & 63, n.seq
ON CONFLICT (lane, seq) DO UPDATE
SET count = known.count + excluded.count, first = least(known.first, excluded.first), last = greatest(known.last, excluded.last),
    varied = known.varied + excluded.varied;

-- name: history_duplicates
-- Reads the duplicate counts of a message.
-- $1 seq bigint
-- Index: primary key of oncebox_duplicate.
SELECT count, first, last, varied FROM oncebox_duplicate WHERE lane = $1 & 63 AND seq = $1;

-- name: history_holders
-- Reads the leases of a message's entries. The first row is the current time.
-- $1 seq bigint
-- $2 handlers smallint[]: all of them
-- $3 now bigint or NULL (server clock)
-- Index: primary key of oncebox_entry.
SELECT NULL::text, NULL::uuid, coalesce($3, (extract(epoch FROM statement_timestamp()) * 1000)::bigint), NULL::bigint
UNION ALL
SELECT h.key, e.claim_id, e.claimed_at, e.lease_until FROM oncebox_entry e JOIN oncebox_handler h ON h.id = e.handler
WHERE e.lane = $1 & 63 AND e.handler = ANY ($2::int2[]) AND e.seq = $1 AND e.token IS NOT NULL;
