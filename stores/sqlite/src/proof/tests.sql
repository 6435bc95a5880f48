-- name: bereft
SELECT count(*) FROM oncebox_proof WHERE seq NOT IN (SELECT seq FROM oncebox_message);

-- name: count
SELECT count(*) FROM oncebox_proof;

-- name: doubled
SELECT count(*) - count(DISTINCT digest) FROM oncebox_message;

-- name: lost
SELECT count(*) FROM oncebox_message m WHERE m.seq <= (SELECT merged FROM oncebox_counter)
AND NOT EXISTS (SELECT 1 FROM oncebox_proof p WHERE p.digest = m.digest AND p.seq = m.seq);

-- name: merged
SELECT merged FROM oncebox_counter;

-- name: pass_slice
SELECT pass_slice FROM oncebox_counter;

-- name: proofs
SELECT proofs FROM oncebox_counter;

-- name: seq
SELECT seq FROM oncebox_counter;

-- name: unmerged
SELECT count(*) FROM oncebox_message WHERE seq > (SELECT merged FROM oncebox_counter);

-- name: wrong
SELECT count(*) FROM oncebox_proof p JOIN oncebox_message m ON m.seq = p.seq WHERE m.digest <> p.digest;
