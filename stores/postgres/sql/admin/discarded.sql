-- Records an entry as discarded.
-- $1 now bigint or NULL (server clock)
-- $2 seq bigint
-- $3 handler smallint
-- $4 generation integer
-- $5 attempts integer
-- $6 crashes integer
-- $7 error text or NULL
INSERT INTO oncebox_outcome (seq, token, at, attempts, crashes, generation, lane, handler, status, error)
VALUES ($2, 0, coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint), $5, $6, $4, $2 & 63, $3, 'discarded', $7)
