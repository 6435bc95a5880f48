-- What stands before an entry of a line: one that runs, or else the first that does not let it pass. $1 the entry's number, $2
-- handler, $3 order key.
SELECT a.seq, a.status, p.digest
FROM (
    SELECT e.seq, CASE WHEN e.token IS NULL THEN 'pending' ELSE 'running' END AS status,
           CASE WHEN e.token IS NULL THEN 1 ELSE 0 END AS place
    FROM oncebox_entry e
    WHERE e.lane = $1 & 63 AND e.handler = $2 AND e.order_key = $3 AND e.seq <> $1 AND (e.token IS NOT NULL OR e.seq < $1)
    UNION ALL (
        SELECT e.seq, 'poisoned', 1 FROM oncebox_poisoned e
        WHERE e.lane = $1 & 63 AND e.handler = $2 AND e.order_key = $3 AND e.in_line IN ('blocks', 'parks') AND e.seq < $1
          -- A line that was paused has a row that stands for no message.
          AND e.seq >= 68719476736
        ORDER BY e.seq LIMIT 1
    ) UNION ALL (
        SELECT e.seq, 'pending', 1 FROM oncebox_scheduled e
        WHERE e.lane = $1 & 63 AND e.handler = $2 AND e.order_key = $3 AND e.seq < $1
        ORDER BY e.seq LIMIT 1
    )
) a JOIN oncebox_proof p ON p.seq = a.seq
ORDER BY a.place, a.seq LIMIT 1
