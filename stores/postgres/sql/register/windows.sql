-- Reads all registered windows of an inbox, and the time.
-- $1 now bigint or NULL (server clock)
-- $2 inbox smallint
-- Index: primary key of oncebox_window.
SELECT w.handler, w.span, w.until, coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint)
FROM (SELECT 1) one LEFT JOIN oncebox_window w ON w.inbox = $2
