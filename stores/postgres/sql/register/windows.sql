-- Everything that was said of an inbox, and the time. $1 now or nothing, $2 inbox.
SELECT w.handler, w.span, w.until, coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint)
FROM (SELECT 1) one LEFT JOIN oncebox_window w ON w.inbox = $2
