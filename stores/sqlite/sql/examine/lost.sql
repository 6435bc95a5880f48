-- Counts entries without a message, of the first ?1 pending or poisoned ones and of all running ones. The row of a
-- paused order key has a negative number and no message.
-- ?1 limit
-- Index: the primary keys.
SELECT count(*) FROM (
    SELECT seq FROM (SELECT seq FROM oncebox_entry ORDER BY seq LIMIT ?1)
    UNION ALL SELECT seq FROM oncebox_running
    UNION ALL SELECT seq FROM (SELECT seq FROM oncebox_poisoned WHERE seq > 0 ORDER BY seq LIMIT ?1)
) e WHERE NOT EXISTS (SELECT 1 FROM oncebox_message m WHERE m.seq = e.seq)
