-- Takes over entries whose lease ran out, the longest overdue first. $1 now or nothing, $2 claim id, $3 lease, $4 all lanes,
-- $5 handlers, $6 how many at most.
WITH moment AS MATERIALIZED (
    SELECT coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint) AS now
), overdue AS MATERIALIZED (
    SELECT r.ctid AS tid
    FROM @running r, moment m
    WHERE r.lease_until < m.now AND r.handler = ANY ($5::int2[])
      AND NOT EXISTS (SELECT 1 FROM @running mine WHERE mine.lane = ANY ($4::int2[]) AND mine.claim_id = $2)
    ORDER BY r.lease_until, r.seq LIMIT $6 FOR UPDATE OF r SKIP LOCKED
)
UPDATE @running r
SET claim_id = $2, token = (SELECT nextval('@token')), claimed_at = m.now, lease_until = m.now + $3
FROM moment m
WHERE r.ctid = ANY (ARRAY(SELECT tid FROM overdue))
