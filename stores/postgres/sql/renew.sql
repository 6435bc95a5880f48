-- name: renew
-- Extends leases. Skips a locked row: another transaction settles it or takes it over, or its own handler's transaction
-- holds it. Returns the places of the claims that hold.
-- $1 now bigint or NULL (server clock)
-- $2 lease bigint in ms
-- $3 place integer[] (by claim)
-- $4 lane smallint[]
-- $5 handler smallint[]
-- $6 seq bigint[]
-- $7 token bigint[]
-- $8 claim_id uuid[]
-- $9 alone boolean[]: true if the run is still the only one
-- Index: primary key of oncebox_entry.
-- Lock order: oncebox_entry; skips locked rows.
WITH moment AS MATERIALIZED (
    SELECT coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint) AS now
), holds AS MATERIALIZED (
    SELECT c.place, c.alone, r.tid
    FROM unnest($3::int4[], $4::int2[], $5::int2[], $6::int8[], $7::int8[], $8::uuid[], $9::bool[])
         AS c (place, lane, handler, seq, token, claim_id, alone)
    CROSS JOIN LATERAL (
        SELECT r.ctid AS tid FROM oncebox_entry r
        WHERE r.lane = c.lane AND r.handler = c.handler AND r.seq = c.seq AND r.token = c.token AND r.claim_id = c.claim_id
        LIMIT 1
    ) r
), free AS MATERIALIZED (
    SELECT r.ctid AS tid FROM oncebox_entry r WHERE r.ctid = ANY (ARRAY(SELECT tid FROM holds)) FOR UPDATE SKIP LOCKED
), renewed AS (
    UPDATE oncebox_entry r
    SET lease_until = m.now + $2,
        alone = CASE WHEN r.alone THEN nullif(r.ctid <> ALL (ARRAY(SELECT tid FROM holds WHERE NOT alone)), false) END
    FROM moment m WHERE r.ctid = ANY (ARRAY(SELECT tid FROM free))
)
SELECT place FROM holds;
