-- Stands before everybody in a line and lets nobody pass: an operator holds it back. Its number is in no partition, and so less than
-- that of any message. A row if there was none. Needs the lock of the line. $1 now or nothing, $2 lane, $3 handler, $4 order key,
-- $5 the line as JSON.
INSERT INTO oncebox_poisoned (seq, token, at, attempts, crashes, generation, lane, handler, reason, order_key, in_line, error)
SELECT ((nextval('oncebox_counter') & 1073741823) << 6) | $2::int8, 0,
       coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint), 0, 0, 0, $2, $3, 'paused', $4, 'blocks', $5
WHERE NOT EXISTS (
    SELECT 1 FROM oncebox_poisoned
    WHERE lane = $2 AND handler = $3 AND order_key = $4 AND in_line = 'blocks' AND seq < 68719476736
)
RETURNING seq
