-- What is behind an entry that holds its order key back: how many, and when the first of them came.
WITH behind (seq) AS (
    SELECT seq FROM oncebox_entry WHERE handler = ?1 AND order_key = ?2 AND due = 9223372036854775807 AND seq > ?3
    UNION ALL
    SELECT l.seq FROM oncebox_line l CROSS JOIN oncebox_entry e ON e.seq = l.seq AND e.handler = l.handler
    WHERE l.handler = ?1 AND l.order_key = ?2 AND l.seq > ?3
    UNION ALL
    SELECT seq FROM oncebox_poisoned WHERE handler = ?1 AND order_key = ?2 AND in_line = 'parked' AND seq > ?3
)
SELECT count(*), (SELECT received_at FROM oncebox_message WHERE seq = (SELECT min(seq) FROM behind)) FROM behind
