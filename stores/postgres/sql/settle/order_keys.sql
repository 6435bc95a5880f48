-- The order keys of claims that hold, for their lines. By claim: $1 lane, $2 claim id, $3 number, $4 handler, $5 token.
SELECT r.lane, r.handler, r.order_key
FROM unnest($1::int2[], $2::uuid[], $3::int8[], $4::int2[], $5::int8[]) AS s (lane, claim_id, seq, handler, token)
JOIN @running r
  ON r.lane = s.lane AND r.claim_id = s.claim_id AND r.seq = s.seq AND r.handler = s.handler AND r.token = s.token
WHERE r.order_key IS NOT NULL
