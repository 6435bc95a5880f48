-- How long after its first delivery a message came again at the latest, of the last ?2 that did; and when the last message of the
-- file came. ?1 inbox.
SELECT (
    SELECT max(a.last - m.received_at)
    FROM (SELECT seq, last FROM oncebox_duplicate WHERE seq > 0 ORDER BY seq DESC LIMIT ?2) a CROSS JOIN oncebox_message m ON m.seq = a.seq
    WHERE m.inbox = ?1
), (SELECT received_at FROM oncebox_message WHERE seq > 0 ORDER BY seq DESC LIMIT 1)
