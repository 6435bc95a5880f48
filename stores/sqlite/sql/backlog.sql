-- name: backlog_blocked
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
), (SELECT received_at FROM oncebox_message WHERE seq = (SELECT min(seq) FROM first));

-- name: backlog_first
-- Reads the due time of the first entry of a handler that is due.
-- ?1 handler
-- ?2 now
-- Index: oncebox_entry_due, one step.
SELECT min(due) FROM oncebox_entry WHERE handler = ?1 AND due <= ?2 AND due <> 9223372036854775807;

-- name: backlog_pending
-- Counts the pending entries of a handler up to a limit: those with a due time, and those that wait for an earlier one.
-- ?1 handler
-- ?2 limit
-- Index: oncebox_entry_due and oncebox_entry_order.
SELECT count(*) FROM (
    SELECT 1 FROM oncebox_entry WHERE handler = ?1 AND due <> 9223372036854775807
    UNION ALL
    SELECT 1 FROM oncebox_entry WHERE handler = ?1 AND due = 9223372036854775807
    LIMIT ?2
);

-- name: backlog_poisoned
-- Counts poisoned entries by handler, up to a limit of all: beyond it an operator has enough to read. The row of a
-- paused order key has a negative number and does not count.
-- ?1 limit
-- Index: primary key of oncebox_poisoned.
SELECT handler, count(*) FROM (SELECT handler FROM oncebox_poisoned WHERE seq > 0 LIMIT ?1) GROUP BY handler;
