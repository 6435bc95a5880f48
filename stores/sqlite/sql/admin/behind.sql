-- Counts the entries behind a poisoned entry that blocks its order key, and reads the receive time of the first. All of
-- them wait: none is released behind it.
-- ?1 handler
-- ?2 order_key
-- ?3 seq of the poisoned entry
-- Index: primary key of oncebox_line, oncebox_entry_order, oncebox_poisoned_order.
WITH behind (seq) AS (
    SELECT e.seq FROM oncebox_line l CROSS JOIN oncebox_entry e ON e.handler = l.handler AND e.line = l.number
    WHERE l.handler = ?1 AND l.order_key = ?2 AND e.due = 9223372036854775807 AND e.seq > ?3
    UNION ALL
    SELECT seq FROM oncebox_poisoned WHERE handler = ?1 AND order_key = ?2 AND in_line = 'parked' AND seq > ?3
)
SELECT count(*), (SELECT received_at FROM oncebox_message WHERE seq = (SELECT min(seq) FROM behind)) FROM behind
