-- Counts the messages of an inbox, and those without entries.
-- ?1 inbox
-- Index: none: it scans oncebox_message.
SELECT count(*), count(*) FILTER (WHERE length(handlers) = 0) FROM oncebox_message WHERE inbox = ?1
