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
ORDER BY a.place, a.seq LIMIT 1
