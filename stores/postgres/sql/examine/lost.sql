-- Counts entries without a message, of the first $1 in each table of entries. Rows below the first partition stand for a
-- paused order key and have no message.
-- $1 limit bigint
-- Index: the primary keys.
SELECT count(*) FROM (
    (SELECT lane, seq FROM oncebox_entry ORDER BY lane, handler, seq LIMIT $1)
    UNION ALL (SELECT lane, seq FROM oncebox_scheduled ORDER BY lane, seq LIMIT $1)
    UNION ALL (SELECT lane, seq FROM oncebox_poisoned WHERE seq >= 68719476736 ORDER BY lane, seq LIMIT $1)
) e WHERE NOT EXISTS (SELECT 1 FROM oncebox_message m WHERE m.lane = e.lane AND m.seq = e.seq)
