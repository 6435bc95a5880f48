-- What keys are known with, held until the transaction ends; locked in the order in which everybody locks them. By key:
-- $1 lane, $2 digest.
SELECT p.seq, p.handlers
FROM unnest($1::int2[], $2::bytea[]) AS k (lane, digest)
-- A range of one: it can only be looked up, even if the server takes the table for empty.
JOIN @proof p ON (p.lane, p.digest) BETWEEN (k.lane, k.digest) AND (k.lane, k.digest)
ORDER BY k.lane, k.digest FOR UPDATE OF p
