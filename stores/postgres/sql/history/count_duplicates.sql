-- Adds to the duplicate counts of messages. Skips messages that were swept.
-- $1 seq bigint[] (by message)
-- $2 count bigint[]
-- $3 first bigint[]: time
-- $4 last bigint[]: time
-- $5 varied bigint[]: count with another payload
-- Index: oncebox_proof_seq, primary key of oncebox_duplicate.
-- Lock order: oncebox_duplicate by (lane, seq), as sweeps do.
INSERT INTO oncebox_duplicate AS known (seq, count, first, last, lane, varied)
SELECT n.seq, n.count, n.first, n.last, n.seq & 63, n.varied
FROM unnest($1::int8[], $2::int8[], $3::int8[], $4::int8[], $5::int8[]) AS n (seq, count, first, last, varied)
WHERE (SELECT p.seq FROM oncebox_proof p WHERE p.seq = n.seq LIMIT 1) IS NOT NULL
-- As they lie in the index: sweeps remove them in this order.
ORDER BY n.seq & 63, n.seq
ON CONFLICT (lane, seq) DO UPDATE
SET count = known.count + excluded.count, first = least(known.first, excluded.first), last = greatest(known.last, excluded.last),
    varied = known.varied + excluded.varied
