-- How long after its first delivery a message came again at the latest, of the last $3 of each lane that did. $1 inbox, $2 all
-- lanes, $3 how many.
SELECT max(a.last - p.received_at)
FROM unnest($2::int2[]) l (lane)
CROSS JOIN LATERAL (SELECT seq, last FROM oncebox_duplicate a WHERE a.lane = l.lane ORDER BY a.seq DESC LIMIT $3) a
CROSS JOIN LATERAL (SELECT received_at, inbox FROM oncebox_proof p WHERE p.seq = a.seq LIMIT 1) p
WHERE p.inbox = $1
