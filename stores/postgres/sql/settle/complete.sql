-- Completes claims under their fence, and answers with one row: the places of those that held. $1 now or nothing; by claim: $2 place,
-- $3 lane, $4 handler, $5 number, $6 token, $7 claim id.
WITH moment AS MATERIALIZED (
    -- Once, and not for each row: it takes as long as a look into an index.
    SELECT coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint) AS now
), ended AS (
    DELETE FROM oncebox_entry r
    USING unnest($2::int4[], $3::int2[], $4::int2[], $5::int8[], $6::int8[], $7::uuid[])
          AS s (place, lane, handler, seq, token, claim_id)
    -- An array of one: what is looked up so cannot be joined the other way round, row by row of the whole table, when the server
    -- takes that for empty.
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
