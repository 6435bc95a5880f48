-- The order keys of claims that hold, for their lines. By claim: $1 lane, $2 handler, $3 number, $4 token, $5 claim id.
SELECT r.lane, r.handler, r.order_key
FROM unnest($1::int2[], $2::int2[], $3::int8[], $4::int8[], $5::uuid[]) AS s (lane, handler, seq, token, claim_id)
JOIN @entry r
  ON r.lane = s.lane AND r.handler = s.handler AND r.seq = s.seq AND r.token = s.token AND r.claim_id = s.claim_id
WHERE r.order_key IS NOT NULL
