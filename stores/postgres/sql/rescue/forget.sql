-- Forgets claims that hold nothing any more, and notes when the leases of the others may run out. $1 now or nothing.
WITH moment AS MATERIALIZED (
    SELECT coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint) AS now
), lapsed AS MATERIALIZED (
    SELECT c.ctid AS tid, c.claim_id, c.lanes, c.handlers, c.firsts, c.lasts FROM oncebox_claim c, moment m WHERE c.until < m.now
    ORDER BY c.until LIMIT 10000 FOR UPDATE OF c SKIP LOCKED
), left_over AS MATERIALIZED (
    SELECT c.tid, c.claim_id, (
        SELECT min(e.lease_until)
        FROM unnest(c.lanes, c.handlers, c.firsts, c.lasts) AS l (lane, handler, first, last)
        -- OFFSET keeps it from being joined the other way round, row by row of the whole table.
        CROSS JOIN LATERAL (
            SELECT e.lease_until FROM oncebox_entry e
            WHERE e.lane = l.lane AND e.handler = l.handler AND e.seq BETWEEN l.first AND l.last AND e.claim_id = c.claim_id OFFSET 0
        ) e
    ) AS until
    FROM lapsed c
), kept AS (
    -- An array of one: it can only be looked up, even if the server takes the table for empty.
    UPDATE oncebox_claim c SET until = l.until FROM left_over l, moment m
    WHERE c.claim_id = ANY (ARRAY[l.claim_id]) AND l.until >= m.now
)
DELETE FROM oncebox_claim WHERE ctid = ANY (ARRAY(SELECT tid FROM left_over WHERE until IS NULL))
