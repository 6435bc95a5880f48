-- Lets the first of each line go, unless one of the line runs or an earlier one is poisoned and not skipped. Answers with the
-- lines whose followers are to be parked. Needs the lock of the lines.
-- $1 now or nothing, by line: $2 lane, $3 handler, $4 order key.
WITH moment AS MATERIALIZED (
    SELECT coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint) AS now
), line AS MATERIALIZED (
    SELECT * FROM unnest($2::int2[], $3::int2[], $4::bytea[]) AS l (lane, handler, order_key)
), free AS MATERIALIZED (
    SELECT head.seq, l.lane, l.handler
    FROM line l CROSS JOIN LATERAL (
        -- A range of one value: only the index of lines has this order, so that no plan, made while the table was empty, walks
        -- along the primary key instead.
        SELECT p.seq, p.due FROM @later p
        WHERE p.lane = l.lane AND p.handler = l.handler AND p.order_key BETWEEN l.order_key AND l.order_key
        ORDER BY p.order_key, p.seq LIMIT 1
    ) head
    WHERE head.due = 9223372036854775807
      AND (
        SELECT r.order_key FROM @entry r
        WHERE r.lane = l.lane AND r.handler = l.handler AND r.order_key BETWEEN l.order_key AND l.order_key
        ORDER BY r.order_key LIMIT 1
    ) IS NULL AND (
        SELECT b.seq FROM @poisoned b
        WHERE b.lane = l.lane AND b.handler = l.handler AND b.order_key = l.order_key AND b.in_line IN ('blocks', 'parks')
          AND b.seq < head.seq
        LIMIT 1
    ) IS NULL
), released AS (
    UPDATE @later p SET due = greatest(p.not_before, m.now)
    FROM free f, moment m
    WHERE p.lane = f.lane AND p.seq = f.seq AND p.handler = f.handler
)
SELECT l.lane, l.handler, l.order_key FROM line l WHERE (
    SELECT b.seq FROM @poisoned b
    WHERE b.lane = l.lane AND b.handler = l.handler AND b.order_key = l.order_key AND b.in_line = 'parks'
    LIMIT 1
) IS NOT NULL
