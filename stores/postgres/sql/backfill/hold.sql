-- What keys are known with, held until the transaction ends; locked by their number, as everybody does. Not those whose content was
-- erased. $1 numbers, in order, $2 fingerprint of what is erased.
SELECT p.seq, p.handlers
FROM unnest($1::int8[]) AS k (seq)
CROSS JOIN LATERAL (SELECT p.seq, p.handlers, p.fingerprint FROM oncebox_proof p WHERE p.seq = k.seq LIMIT 1 FOR UPDATE) p
WHERE p.fingerprint <> $2
