-- Forgets claims that hold nothing any more, and notes when the leases of the others may run out. $1 now or nothing.
WITH moment AS MATERIALIZED (
    SELECT coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint) AS now
), lapsed AS MATERIALIZED (
    SELECT c.claim_id, c.lanes, c.handlers, c.firsts, c.lasts FROM @claim c, moment m WHERE c.until < m.now
    ORDER BY c.until LIMIT 10000 FOR UPDATE OF c SKIP LOCKED
), left_over AS MATERIALIZED (
    SELECT c.claim_id, (
        SELECT min(e.lease_until)
        FROM unnest(c.lanes, c.handlers, c.firsts, c.lasts) AS l (lane, handler, first, last)
        JOIN @entry e
          ON e.lane = l.lane AND e.handler = l.handler AND e.seq BETWEEN l.first AND l.last AND e.claim_id = c.claim_id
    ) AS until
    FROM lapsed c
), kept AS (
    UPDATE @claim c SET until = l.until FROM left_over l, moment m WHERE c.claim_id = l.claim_id AND l.until >= m.now
)
DELETE FROM @claim c USING left_over l WHERE c.claim_id = l.claim_id AND l.until IS NULL
