-- What keys are known with, held until the transaction ends; locked in the order in which everybody locks them. By key:
-- $1 lane, $2 digest.
SELECT p.seq, p.handlers
FROM unnest($1::int2[], $2::bytea[]) AS k (lane, digest) JOIN @proof p ON p.lane = k.lane AND p.digest = k.digest
ORDER BY p.lane, p.digest FOR UPDATE OF p
