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
ORDER BY a.place, a.seq LIMIT 1
