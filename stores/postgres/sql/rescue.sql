-- name: rescue
-- Takes over entries whose lease expired, longest overdue first.
-- $1 now bigint or NULL (server clock)
-- $2 claim_id uuid
-- $3 lease bigint in ms
-- $4 handlers smallint[]
-- $5 limit bigint
-- Index: primary key of oncebox_entry; oncebox_claim is scanned.
-- Lock order: oncebox_entry; skips locked rows. Then oncebox_claim.
WITH moment AS MATERIALIZED (
    SELECT coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint) AS now
), overdue AS MATERIALIZED (
    SELECT r.tid
    FROM moment m, oncebox_claim c
    CROSS JOIN LATERAL unnest(c.lanes, c.handlers, c.firsts, c.lasts) AS l (lane, handler, first, last)
    CROSS JOIN LATERAL (
        SELECT e.ctid AS tid, e.lease_until, e.seq FROM oncebox_entry e
        WHERE e.lane = l.lane AND e.handler = l.handler AND e.seq BETWEEN l.first AND l.last AND e.claim_id = c.claim_id
          AND e.lease_until < m.now
        FOR UPDATE SKIP LOCKED
    ) r
    WHERE c.until < m.now AND l.handler = ANY ($4::int2[]) AND NOT EXISTS (SELECT 1 FROM oncebox_claim mine WHERE mine.claim_id = $2)
    ORDER BY r.lease_until, r.seq LIMIT $5
), token AS MATERIALIZED (
    SELECT nextval('oncebox_token') AS token FROM (SELECT 1 FROM overdue LIMIT 1) o
), taken AS (
    UPDATE oncebox_entry e SET claim_id = $2, token = t.token, claimed_at = m.now, lease_until = m.now + $3
    FROM moment m, token t
    WHERE e.ctid = ANY (ARRAY(SELECT tid FROM overdue))
    RETURNING e.seq, e.lane, e.handler
)
INSERT INTO oncebox_claim (claim_id, until, lanes, handlers, firsts, lasts)
SELECT $2, m.now + $3, t.lanes, t.handlers, t.seqs, t.seqs
FROM moment m, (
    SELECT array_agg(lane) AS lanes, array_agg(handler) AS handlers, array_agg(seq) AS seqs FROM taken HAVING count(*) > 0
) t;

-- name: rescue_forget
-- Deletes claims that hold nothing, and notes when the leases of the others may expire.
-- $1 now bigint or NULL (server clock)
-- Index: primary key of oncebox_entry; oncebox_claim is scanned for expired rows.
-- Lock order: oncebox_claim by until; skips locked rows.
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
DELETE FROM oncebox_claim WHERE ctid = ANY (ARRAY(SELECT tid FROM left_over WHERE until IS NULL));
