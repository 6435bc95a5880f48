-- Inserts an entry that is due now.
-- $1 now bigint or NULL (server clock)
-- $2 seq bigint
-- $3 handler smallint
-- $4 generation integer
-- $5 order_key bytea or NULL
-- $6 error text or NULL
INSERT INTO oncebox_scheduled (seq, due, not_before, lane, handler, generation, order_key, error)
SELECT $2, CASE WHEN $5::bytea IS NULL THEN now ELSE 9223372036854775807 END, now, $2 & 63, $3, $4, $5, $6
FROM (SELECT coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint) AS now) m
