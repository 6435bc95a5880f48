-- Locks the rows of claims that hold, until the transaction ends. By claim, in the order in which everybody locks them: $1 place,
-- $2 lane, $3 handler, $4 number, $5 token, $6 claim id.
SELECT s.place
FROM unnest($1::int4[], $2::int2[], $3::int2[], $4::int8[], $5::int8[], $6::uuid[])
     AS s (place, lane, handler, seq, token, claim_id)
JOIN @entry r
  -- An array of one: it can only be looked up, even if the server takes the table for empty.
  ON r.lane = ANY (ARRAY[s.lane]) AND r.handler = s.handler AND r.seq = s.seq
 AND r.token = s.token AND r.claim_id = s.claim_id
FOR UPDATE OF r
