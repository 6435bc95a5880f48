-- How many entries have no message any more, of the first $1 in each table of work.
-- A line that an operator holds back has a row with a smaller number, which stands for no message.
-- $1 how many bigint. Reads along the primary keys.
SELECT count(*) FROM (
    (SELECT lane, seq FROM oncebox_entry ORDER BY lane, handler, seq LIMIT $1)
    UNION ALL (SELECT lane, seq FROM oncebox_scheduled ORDER BY lane, seq LIMIT $1)
    UNION ALL (SELECT lane, seq FROM oncebox_poisoned WHERE seq >= 68719476736 ORDER BY lane, seq LIMIT $1)
) e WHERE NOT EXISTS (SELECT 1 FROM oncebox_message m WHERE m.lane = e.lane AND m.seq = e.seq)
