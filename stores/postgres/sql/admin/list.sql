-- Unfinished entries with a status. $1 inbox, $2 handler key or nothing, $3 number and $4 handler key to go on after, $5 how many,
-- $6 status.
SELECT e.seq, h.key, e.status, e.attempts, e.crashes, e.generation, e.at, e.reason, e.error, p.digest
FROM (
    SELECT seq, handler, 'pending' AS status, 0 AS attempts, 0 AS crashes, 0 AS generation, received_at AS at,
           NULL::text AS reason, NULL::text AS error FROM @ready WHERE $6 = 'pending'
    UNION ALL SELECT seq, handler, 'pending', attempts, crashes, generation, due, NULL, error FROM @later WHERE $6 = 'pending'
    UNION ALL SELECT seq, handler, 'running', attempts, crashes, generation, lease_until, NULL, error FROM @running
    WHERE $6 = 'running'
    UNION ALL SELECT seq, handler, 'poisoned', attempts, crashes, generation, at, reason, error FROM @poisoned
    WHERE $6 = 'poisoned'
) e
JOIN @handler h ON h.id = e.handler JOIN @proof p ON p.seq = e.seq
WHERE h.inbox = $1 AND ($2::text IS NULL OR h.key = $2) AND e.seq >= $3 AND (e.seq > $3 OR h.key COLLATE "C" > $4)
ORDER BY e.seq, h.key COLLATE "C" LIMIT $5
