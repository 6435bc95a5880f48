-- Nothing for a message that is not remembered any more. By message: $1 number, $2 how many, $3 when the first came, $4 the last, $5 how
-- many had another payload.
INSERT INTO oncebox_duplicate AS known (seq, count, first, last, lane, varied)
SELECT n.seq, n.count, n.first, n.last, n.seq & 63, n.varied
FROM unnest($1::int8[], $2::int8[], $3::int8[], $4::int8[], $5::int8[]) AS n (seq, count, first, last, varied)
WHERE (SELECT p.seq FROM oncebox_proof p WHERE p.seq = n.seq LIMIT 1) IS NOT NULL
-- As they lie in the index: sweeps remove them in this order.
ORDER BY n.seq & 63, n.seq
ON CONFLICT (lane, seq) DO UPDATE
SET count = known.count + excluded.count, first = least(known.first, excluded.first), last = greatest(known.last, excluded.last),
    varied = known.varied + excluded.varied
