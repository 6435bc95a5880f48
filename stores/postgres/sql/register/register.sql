-- Registers windows of handlers. Skips a write if the window was registered recently.
-- $1 now bigint or NULL (server clock)
-- $2 inbox smallint
-- $3 hold bigint in ms
-- $4 handler text[]: key, empty for the inbox (by window)
-- $5 span bigint[] in ms
-- Index: primary key of oncebox_window.
-- Lock order: oncebox_window by (handler, span).
INSERT INTO oncebox_window AS w (inbox, handler, span, until)
SELECT $2, o.handler, o.span, coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint) + $3
FROM unnest($4::text[], $5::int8[]) AS o (handler, span)
ORDER BY o.handler, o.span
ON CONFLICT (inbox, handler, span) DO UPDATE SET until = excluded.until WHERE w.until < excluded.until - $3 / 2
