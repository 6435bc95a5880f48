-- Forgets claims that hold nothing any more, and notes when the leases of the others may run out. $1 now or nothing.
WITH moment AS MATERIALIZED (
    SELECT coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint) AS now
), lapsed AS MATERIALIZED (
    SELECT c.ctid AS tid, c.claim_id, c.lanes, c.handlers, c.firsts, c.lasts FROM @claim c, moment m WHERE c.until < m.now
    ORDER BY c.until LIMIT 10000 FOR UPDATE OF c SKIP LOCKED
), left_over AS MATERIALIZED (
    SELECT c.tid, c.claim_id, (
        SELECT min(e.lease_until)
        FROM unnest(c.lanes, c.handlers, c.firsts, c.lasts) AS l (lane, handler, first, last)
        JOIN @entry e ON (e.lane, e.handler, e.seq) BETWEEN (l.lane, l.handler, l.first) AND (l.lane, l.handler, l.last)
                     AND e.claim_id = c.claim_id
    ) AS until
    FROM lapsed c
), kept AS (
    -- A range of one: it can only be looked up, even if the server takes the table for empty.
    UPDATE @claim c SET until = l.until FROM left_over l, moment m
    WHERE c.claim_id BETWEEN l.claim_id AND l.claim_id AND l.until >= m.now
)
DELETE FROM @claim WHERE ctid = ANY (ARRAY(SELECT tid FROM left_over WHERE until IS NULL))
