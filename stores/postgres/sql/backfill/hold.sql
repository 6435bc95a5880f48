-- What keys are known with, held until the transaction ends; locked by their number, as everybody does. $1 numbers, in order.
SELECT p.seq, p.handlers
FROM unnest($1::int8[]) AS k (seq)
CROSS JOIN LATERAL (SELECT p.seq, p.handlers FROM @proof p WHERE p.seq = k.seq LIMIT 1 FOR UPDATE) p
