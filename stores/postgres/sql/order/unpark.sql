-- Makes those pending again that are parked, and that nothing parks any more. They wait; the first is let go next. Needs the
-- lock of the lines. By line: $1 lane, $2 handler, $3 order key.
WITH freed AS (
    DELETE FROM oncebox_poisoned p USING unnest($1::int2[], $2::int2[], $3::bytea[]) AS l (lane, handler, order_key)
    WHERE p.lane = l.lane AND p.handler = l.handler AND p.order_key = l.order_key AND p.in_line = 'parked' AND NOT EXISTS (
        SELECT 1 FROM oncebox_poisoned b
        WHERE b.lane = l.lane AND b.handler = l.handler AND b.order_key = l.order_key AND b.in_line = 'parks' AND b.seq < p.seq
    )
    RETURNING p.seq, p.not_before, p.token, p.attempts, p.crashes, p.generation, p.lane, p.handler, p.order_key, p.error
)
INSERT INTO oncebox_scheduled (seq, due, not_before, token, attempts, crashes, generation, lane, handler, order_key, error)
SELECT seq, 9223372036854775807, coalesce(not_before, 0), token, attempts, crashes, generation, lane, handler, order_key, error
FROM freed
