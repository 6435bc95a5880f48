-- Lists all entries and outcomes of one message.
-- $1 seq bigint
-- $2 handlers smallint[]: all of them
-- Index: the primary keys of the tables of entries.
SELECT e.seq, h.key, e.status, e.attempts, e.crashes, e.generation, e.at, e.reason, e.error, e.in_line, h.origin
FROM (
    SELECT seq, handler, CASE WHEN token IS NULL THEN 'pending' ELSE 'running' END AS status, coalesce(attempts, 0) AS attempts,
           coalesce(crashes, 0) AS crashes, coalesce(generation, 0) AS generation, coalesce(lease_until, due) AS at,
           NULL::text AS reason, error, NULL::text AS in_line FROM oncebox_entry WHERE lane = $1 & 63 AND handler = ANY ($2::int2[]) AND seq = $1
    UNION ALL SELECT seq, handler, 'pending', attempts, crashes, generation, due, NULL, error, NULL FROM oncebox_scheduled
    WHERE lane = $1 & 63 AND seq = $1
    UNION ALL SELECT seq, handler, 'poisoned', attempts, crashes, generation, at, reason, error, in_line FROM oncebox_poisoned
    WHERE lane = $1 & 63 AND seq = $1
    UNION ALL SELECT seq, handler, status, attempts, crashes, generation, at, NULL, error, NULL FROM oncebox_outcome
    WHERE lane = $1 & 63 AND seq = $1
) e JOIN oncebox_handler h ON h.id = e.handler
ORDER BY h.key COLLATE "C", e.generation
