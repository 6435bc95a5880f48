-- name: examine_index
-- Returns a row if an index exists.
-- ?1 name
SELECT 1 FROM sqlite_schema WHERE type = 'index' AND name = ?1;

-- name: examine_late
-- Returns the longest time between the first delivery and a redelivery, over the last ?2 redelivered messages, and the
-- receive time of the file's last message.
-- ?1 inbox
-- ?2 limit
-- Index: primary keys of oncebox_duplicate and oncebox_message.
SELECT (
    SELECT max(a.last - m.received_at)
    FROM (SELECT seq, last FROM oncebox_duplicate WHERE seq > 0 ORDER BY seq DESC LIMIT ?2) a CROSS JOIN oncebox_message m ON m.seq = a.seq
    WHERE m.inbox = ?1
), (SELECT received_at FROM oncebox_message WHERE seq > 0 ORDER BY seq DESC LIMIT 1);

-- name: examine_lost
-- Counts entries without a message, of the first ?1 pending or poisoned ones and of all running ones. The row of a
-- paused order key has a negative number and no message.
-- ?1 limit
-- Index: the primary keys.
SELECT count(*) FROM (
    SELECT seq FROM (SELECT seq FROM oncebox_entry ORDER BY seq LIMIT ?1)
    UNION ALL SELECT seq FROM oncebox_running
    UNION ALL SELECT seq FROM (SELECT seq FROM oncebox_poisoned WHERE seq > 0 ORDER BY seq LIMIT ?1)
) e WHERE NOT EXISTS (SELECT 1 FROM oncebox_message m WHERE m.seq = e.seq);

-- name: examine_windows
-- Lists handler keys whose window never ends; an empty key stands for the inbox.
-- ?1 inbox, by name
-- ?2 span that stands for no end, in ms
-- Index: none: the table is small.
SELECT w.handler FROM oncebox_window w JOIN oncebox_inbox i ON i.id = w.inbox WHERE i.name = ?1 AND w.span >= ?2;
