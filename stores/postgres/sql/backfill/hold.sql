-- Reads and locks the proofs of some messages. Skips those with erased content.
-- $1 seqs bigint[]: in order
-- $2 fingerprint bytea: of erased content
-- Index: oncebox_proof_seq.
-- Lock order: oncebox_proof by number, until the transaction ends.
SELECT p.seq, p.handlers
FROM unnest($1::int8[]) AS k (seq)
CROSS JOIN LATERAL (SELECT p.seq, p.handlers, p.fingerprint FROM oncebox_proof p WHERE p.seq = k.seq LIMIT 1 FOR UPDATE) p
WHERE p.fingerprint <> $2
