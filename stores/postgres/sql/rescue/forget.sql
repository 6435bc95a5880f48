-- Deletes claims that hold nothing, and notes when the leases of the others may expire.
-- $1 now bigint or NULL (server clock)
-- Index: primary key of oncebox_entry; oncebox_claim is scanned for expired rows.
-- Lock order: oncebox_claim by `until`; skips locked rows.
WITH moment AS MATERIALIZED (
    SELECT coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint) AS now
), lapsed AS MATERIALIZED (
    SELECT c.ctid AS tid, c.claim_id, c.lanes, c.handlers, c.firsts, c.lasts FROM oncebox_claim c, moment m WHERE c.until < m.now
    ORDER BY c.until LIMIT 10000 FOR UPDATE OF c SKIP LOCKED
), left_over AS MATERIALIZED (
    SELECT c.tid, c.claim_id, (
        SELECT min(e.lease_until)
        FROM unnest(c.lanes, c.handlers, c.firsts, c.lasts) AS l (lane, handler, first, last)
        -- OFFSET keeps the planner from joining from the whole table.
        CROSS JOIN LATERAL (
            SELECT e.lease_until FROM oncebox_entry e
            WHERE e.lane = l.lane AND e.handler = l.handler AND e.seq BETWEEN l.first AND l.last AND e.claim_id = c.claim_id OFFSET 0
        ) e
    ) AS until
    FROM lapsed c
), kept AS (
    -- An array of one: the server can only look rows up, even if it believes that the table is empty.
    UPDATE oncebox_claim c SET until = l.until FROM left_over l, moment m
    WHERE c.claim_id = ANY (ARRAY[l.claim_id]) AND l.until >= m.now
)
DELETE FROM oncebox_claim WHERE ctid = ANY (ARRAY(SELECT tid FROM left_over WHERE until IS NULL))
