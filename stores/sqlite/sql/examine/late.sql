-- Returns the longest time between the first delivery and a redelivery, over the last ?2 redelivered messages, and the
-- receive time of the file's last message.
-- ?1 inbox
-- ?2 limit
-- Index: primary keys of oncebox_duplicate and oncebox_message.
SELECT (
    SELECT max(a.last - m.received_at)
    FROM (SELECT seq, last FROM oncebox_duplicate WHERE seq > 0 ORDER BY seq DESC LIMIT ?2) a CROSS JOIN oncebox_message m ON m.seq = a.seq
    WHERE m.inbox = ?1
), (SELECT received_at FROM oncebox_message WHERE seq > 0 ORDER BY seq DESC LIMIT 1)
