-- How many entries have no message any more, of the first ?1 that are pending or poisoned and of all that run. A line that an operator
-- holds back has a row with a number below zero, which stands for no message.
SELECT count(*) FROM (
    SELECT seq FROM (SELECT seq FROM oncebox_entry ORDER BY seq LIMIT ?1)
    UNION ALL SELECT seq FROM oncebox_running
    UNION ALL SELECT seq FROM (SELECT seq FROM oncebox_poisoned WHERE seq > 0 ORDER BY seq LIMIT ?1)
) e WHERE NOT EXISTS (SELECT 1 FROM oncebox_message m WHERE m.seq = e.seq)
