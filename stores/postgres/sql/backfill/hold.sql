-- What keys are known with, held until the transaction ends; locked in the order in which everybody locks them. By key:
-- $1 lane, $2 digest.
SELECT p.seq, p.handlers
FROM unnest($1::int2[], $2::bytea[]) AS k (lane, digest)
-- An array of one: it can only be looked up, even if the server takes the table for empty.
JOIN @proof p ON p.lane = ANY (ARRAY[k.lane]) AND p.digest = k.digest
ORDER BY k.lane, k.digest FOR UPDATE OF p
