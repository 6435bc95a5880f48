-- Locks the running rows of claims that hold, until the transaction ends. By claim, in the order in which everybody locks them:
-- $1 place, $2 lane, $3 claim id, $4 number, $5 handler, $6 token.
SELECT s.place
FROM unnest($1::int4[], $2::int2[], $3::uuid[], $4::int8[], $5::int2[], $6::int8[])
     AS s (place, lane, claim_id, seq, handler, token)
JOIN @running r
  ON r.lane = s.lane AND r.claim_id = s.claim_id AND r.seq = s.seq AND r.handler = s.handler AND r.token = s.token
FOR UPDATE OF r
