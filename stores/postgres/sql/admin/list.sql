-- Unfinished entries with a status. $1 inbox, $2 handler key or nothing, $3 number and $4 handler key to go on after, $5 how many,
-- $6 status, $7 tenant or nothing.
SELECT e.seq, h.key, e.status, e.attempts, e.crashes, e.generation, e.at, e.reason, e.error, e.in_line, p.digest
FROM (
    SELECT seq, handler, $6 AS status, coalesce(attempts, 0) AS attempts, coalesce(crashes, 0) AS crashes,
           coalesce(generation, 0) AS generation, coalesce(lease_until, due) AS at, NULL::text AS reason, error,
           NULL::text AS in_line FROM @entry
    WHERE ($6 = 'pending' AND token IS NULL) OR ($6 = 'running' AND token IS NOT NULL)
    UNION ALL SELECT seq, handler, 'pending', attempts, crashes, generation, due, NULL, error, NULL FROM @later WHERE $6 = 'pending'
    UNION ALL SELECT seq, handler, 'poisoned', attempts, crashes, generation, at, reason, error, in_line FROM @poisoned
    WHERE $6 = 'poisoned'
) e
JOIN @handler h ON h.id = e.handler JOIN @proof p ON p.seq = e.seq
WHERE h.inbox = $1 AND ($2::text IS NULL OR h.key = $2) AND e.seq >= $3 AND (e.seq > $3 OR h.key COLLATE "C" > $4)
  AND ($7::text IS NULL OR p.tenant = $7)
ORDER BY e.seq, h.key COLLATE "C" LIMIT $5
