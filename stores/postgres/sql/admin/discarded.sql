-- $1 now or nothing, $2 number, $3 handler, $4 generation, $5 attempts, $6 crashes, $7 error.
INSERT INTO oncebox_outcome (seq, token, at, attempts, crashes, generation, lane, handler, status, error)
VALUES ($2, 0, coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint), $5, $6, $4, $2 & 63, $3, 'discarded', $7)
