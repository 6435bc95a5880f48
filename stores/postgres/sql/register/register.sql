-- Notes how long handlers remember. What was said not long ago need not be written again. $1 now or nothing, $2 inbox, $3 for how
-- long it counts; by handler: $4 the key, empty for the inbox itself, $5 the window.
INSERT INTO oncebox_window AS w (inbox, handler, span, until)
SELECT $2, o.handler, o.span, coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint) + $3
FROM unnest($4::text[], $5::int8[]) AS o (handler, span)
ORDER BY o.handler, o.span
ON CONFLICT (inbox, handler, span) DO UPDATE SET until = excluded.until WHERE w.until < excluded.until - $3 / 2
