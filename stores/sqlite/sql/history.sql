-- name: history_ahead
-- Finds the entry that an entry of an order queue waits for: a running one, or else the first that blocks it.
-- ?1 handler
-- ?2 order_key
-- ?3 seq of the entry
-- Index: primary key of oncebox_line, oncebox_poisoned_order, oncebox_entry_order.
SELECT a.seq, a.status, m.digest
FROM (
    SELECT l.seq, CASE WHEN e.seq IS NULL THEN 'running' ELSE 'pending' END AS status, e.seq IS NOT NULL AS place
    FROM oncebox_line l LEFT JOIN oncebox_entry e ON e.seq = l.seq AND e.handler = l.handler
    WHERE l.handler = ?1 AND l.order_key = ?2 AND l.seq > 0 AND l.seq <> ?3 AND (e.seq IS NULL OR l.seq < ?3)
    UNION ALL
    SELECT * FROM (
        SELECT seq, 'poisoned', 1 FROM oncebox_poisoned
        WHERE handler = ?1 AND order_key = ?2 AND in_line IN ('blocks', 'parks')
          -- The row of a paused order key has no message.
          AND seq < ?3 AND seq > 0 ORDER BY seq LIMIT 1
    )
    UNION ALL
    SELECT * FROM (
        SELECT e.seq, 'pending', 1 FROM oncebox_line l CROSS JOIN oncebox_entry e ON e.handler = l.handler AND e.line = l.number
        WHERE l.handler = ?1 AND l.order_key = ?2 AND e.due = 9223372036854775807 AND e.seq < ?3 ORDER BY e.seq LIMIT 1
    )
) a JOIN oncebox_message m ON m.seq = a.seq
ORDER BY a.place, a.seq LIMIT 1;

-- name: history_attempt
-- Records a failed attempt.
-- ?1 seq
-- ?2 handler
-- ?3 token
-- ?4 generation
-- ?5 at
-- ?6 event, kind of the failure
-- ?7 attempts
-- ?8 crashes
-- ?9 claim_id
-- ?10 error or NULL
INSERT INTO oncebox_attempt (seq, handler, token, generation, at, event, attempts, crashes, claim_id, error)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10);

-- name: history_attempts
-- Lists the failed attempts of a message, oldest first.
-- ?1 seq
-- Index: primary key of oncebox_attempt.
SELECT handler, generation, at, event, attempts, crashes, error, claim_id FROM oncebox_attempt WHERE seq = ?1 ORDER BY at, token;

-- name: history_count_duplicates
-- Adds to the duplicate count of a message. Skips a message that was swept.
-- ?1 seq
-- ?2 count
-- ?3 first time
-- ?4 last time
-- ?5 varied, count with another payload
-- Index: primary keys of oncebox_message and oncebox_duplicate.
INSERT INTO oncebox_duplicate (seq, count, first, last, varied)
SELECT seq, ?2, ?3, ?4, ?5 FROM oncebox_message WHERE seq = ?1
ON CONFLICT (seq) DO UPDATE
SET count = count + excluded.count, first = min(first, excluded.first), last = max(last, excluded.last),
    varied = varied + excluded.varied;

-- name: history_delete_duplicates
-- Deletes the duplicate count of a message.
-- ?1 seq
-- Index: primary key of oncebox_duplicate.
DELETE FROM oncebox_duplicate WHERE seq = ?1;

-- name: history_duplicates
-- Reads the duplicate count of a message.
-- ?1 seq
-- Index: primary key of oncebox_duplicate.
SELECT count, first, last, varied FROM oncebox_duplicate WHERE seq = ?1;

-- name: history_forget_attempts
-- Deletes the failed attempts of a message.
-- ?1 seq
-- Index: primary key of oncebox_attempt.
DELETE FROM oncebox_attempt WHERE seq = ?1;

-- name: history_holders
-- Reads the leases of a message's entries.
-- ?1 seq
-- Index: none: the table is small.
SELECT handler, claim_id, claimed_at, lease_until FROM oncebox_running WHERE seq = ?1;
