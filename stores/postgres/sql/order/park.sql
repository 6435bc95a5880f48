-- Sets aside those that wait behind an entry that parks. Needs the lock of the lines.
-- $1 now or nothing, by line: $2 lane, $3 handler, $4 order key.
WITH moment AS MATERIALIZED (
    SELECT coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint) AS now
), head AS MATERIALIZED (
    SELECT l.*, (
        SELECT min(b.seq) FROM @poisoned b
        WHERE b.lane = l.lane AND b.handler = l.handler AND b.order_key = l.order_key AND b.in_line = 'parks'
    ) AS seq
    FROM unnest($2::int2[], $3::int2[], $4::bytea[]) AS l (lane, handler, order_key)
), parked AS (
    DELETE FROM @later p USING head h
    WHERE p.lane = h.lane AND p.handler = h.handler AND p.order_key = h.order_key AND p.seq > h.seq
    RETURNING p.seq, p.token, p.attempts, p.crashes, p.generation, p.lane, p.handler, p.order_key, p.not_before, p.error
)
INSERT INTO @poisoned (seq, token, at, attempts, crashes, generation, lane, handler, reason, order_key, in_line, not_before, error)
SELECT seq, token, now, attempts, crashes, generation, lane, handler, 'parked', order_key, 'parked', not_before, error
FROM parked, moment
