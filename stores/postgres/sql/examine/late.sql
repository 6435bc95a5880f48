-- Returns the longest time between the first delivery and a redelivery, over the last $3 redelivered messages of each
-- lane.
-- $1 inbox smallint
-- $2 lanes smallint[]: all of them
-- $3 limit bigint
-- Index: primary key of oncebox_duplicate, oncebox_proof_seq.
SELECT max(a.last - p.received_at)
FROM unnest($2::int2[]) l (lane)
CROSS JOIN LATERAL (SELECT seq, last FROM oncebox_duplicate a WHERE a.lane = l.lane ORDER BY a.seq DESC LIMIT $3) a
CROSS JOIN LATERAL (SELECT received_at, inbox FROM oncebox_proof p WHERE p.seq = a.seq LIMIT 1) p
WHERE p.inbox = $1
