-- Counts the order keys of a handler that a poisoned entry blocks, and the entries behind them, both up to a limit.
-- Reads the receive time of the first of those. The row of a paused order key has a negative number and does not count.
-- ?1 handler
-- ?2 limit of each count
-- Index: oncebox_poisoned_head, oncebox_entry_order, oncebox_poisoned_order.
WITH head (order_key, seq) AS MATERIALIZED (
    SELECT order_key, min(seq) FROM oncebox_poisoned INDEXED BY oncebox_poisoned_head
    WHERE handler = ?1 AND in_line IN ('blocks', 'parks') AND seq > 0 GROUP BY order_key LIMIT ?2
), first (seq) AS MATERIALIZED (
    SELECT (
        SELECT min(e.seq) FROM oncebox_line l CROSS JOIN oncebox_entry e ON e.handler = l.handler AND e.line = l.number
        WHERE l.handler = ?1 AND l.order_key = h.order_key AND e.due = 9223372036854775807 AND e.seq > h.seq
    ) FROM head h
    UNION ALL
    SELECT (
        SELECT min(p.seq) FROM oncebox_poisoned p
        WHERE p.handler = ?1 AND p.order_key = h.order_key AND p.in_line = 'parked' AND p.seq > h.seq
    ) FROM head h
)
SELECT (SELECT count(*) FROM head), (
    SELECT count(*) FROM (
        SELECT 1 FROM head h CROSS JOIN oncebox_line l ON l.handler = ?1 AND l.order_key = h.order_key
        CROSS JOIN oncebox_entry e ON e.handler = l.handler AND e.line = l.number
        WHERE e.due = 9223372036854775807 AND e.seq > h.seq
        UNION ALL
        SELECT 1 FROM head h CROSS JOIN oncebox_poisoned p ON p.handler = ?1 AND p.order_key = h.order_key
        WHERE p.in_line = 'parked' AND p.seq > h.seq
        LIMIT ?2
    )
), (SELECT received_at FROM oncebox_message WHERE seq = (SELECT min(seq) FROM first))
