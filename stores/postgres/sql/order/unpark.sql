-- Makes parked entries pending that no entry parks any more. They wait; `release` then releases the first.
-- $1 lane smallint[] (by queue)
-- $2 handler smallint[]
-- $3 order_key bytea[]
-- Index: oncebox_poisoned_order.
-- Lock order: needs the locks of the queues (`lock`).
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
