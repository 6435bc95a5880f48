-- Completes claims under their fence, and answers with the places of those that held. $1 now or nothing; by claim: $2 place,
-- $3 lane, $4 claim id, $5 number, $6 handler, $7 token. $8 whether it must be in the transaction that a handler was given.
WITH ended AS (
    DELETE FROM @running r
    USING unnest($2::int4[], $3::int2[], $4::uuid[], $5::int8[], $6::int2[], $7::int8[])
          AS s (place, lane, claim_id, seq, handler, token)
    WHERE r.lane = s.lane AND r.claim_id = s.claim_id AND r.seq = s.seq AND r.handler = s.handler AND r.token = s.token
      AND (NOT $8 OR current_setting('oncebox.handler', true) = 'on')
    RETURNING s.place, r.seq, r.lane, r.handler, r.token, r.attempts, r.crashes, r.generation, r.error
), finished AS (
    INSERT INTO @outcome (seq, token, at, attempts, crashes, generation, lane, handler, status, error)
    SELECT seq, token, coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint), attempts, crashes, generation,
           lane, handler, 'completed', error
    FROM ended
)
SELECT place FROM ended
