-- Completes claims under their fence. Returns one row: the places of those that held.
-- $1 now bigint or NULL (server clock)
-- $2 place integer[] (by claim)
-- $3 lane smallint[]
-- $4 handler smallint[]
-- $5 seq bigint[]
-- $6 token bigint[]
-- $7 claim_id uuid[]
-- Index: primary key of oncebox_entry.
-- Lock order: oncebox_entry in the order of the parameters, which all callers share.
WITH moment AS MATERIALIZED (
    -- Once, and not per row: it costs as much as an index lookup.
    SELECT coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint) AS now
), ended AS (
    DELETE FROM oncebox_entry r
    USING unnest($2::int4[], $3::int2[], $4::int2[], $5::int8[], $6::int8[], $7::uuid[])
          AS s (place, lane, handler, seq, token, claim_id)
    -- An array of one: the planner cannot join from the whole table, even if it believes that the table is empty.
    WHERE r.lane = ANY (ARRAY[s.lane]) AND r.handler = s.handler AND r.seq = s.seq
      AND r.token = s.token AND r.claim_id = s.claim_id
    RETURNING s.place, r.seq, r.lane, r.handler, r.token, r.attempts, r.crashes, r.generation, r.error
), finished AS (
    INSERT INTO oncebox_outcome (seq, token, at, attempts, crashes, generation, lane, handler, status, error)
    SELECT seq, token, (SELECT now FROM moment), coalesce(attempts, 0), coalesce(crashes, 0), coalesce(generation, 0), lane, handler,
           'completed', error
    FROM ended
)
SELECT array_agg(place) FROM ended
