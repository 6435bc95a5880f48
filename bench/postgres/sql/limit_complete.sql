-- Completes leased entries, fenced by their tokens.
-- $1 seq bigint[]
-- $2 token bigint[]
-- $3 now bigint in ms
-- Index: primary key of work.
WITH done AS (
    DELETE FROM work w USING unnest($1::int8[], $2::int8[]) AS d (seq, token)
    WHERE w.seq = d.seq AND w.handler = 1 AND w.token = d.token RETURNING w.seq, w.attempts
)
INSERT INTO outcome (seq, handler, attempts, at) SELECT seq, 1, attempts, $3 FROM done
