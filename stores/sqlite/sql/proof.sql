-- name: proof_find
-- Finds the message of a digest in the merged part of the proof.
-- ?1 digest
-- Index: primary key of oncebox_proof.
SELECT seq FROM oncebox_proof WHERE digest = ?1;

-- name: proof_forget
-- Deletes proofs of one slice whose message was swept. Runs beside the merge of the same slice, which reads the same
-- pages.
-- ?1 digest, first of the slice
-- ?2 digest behind the slice
-- ?3 seq, last one to delete
-- Index: primary keys of oncebox_proof and oncebox_message.
DELETE FROM oncebox_proof
WHERE digest >= ?1 AND digest < ?2 AND seq <= ?3
  AND NOT EXISTS (SELECT 1 FROM oncebox_message m WHERE m.seq = oncebox_proof.seq);

-- name: proof_merge
-- Merges a digest into the proof. The caller goes in digest order, one slice at a time, so that neighbours share pages.
-- A newer message replaces a swept one.
-- ?1 digest
-- ?2 seq
-- Index: primary key of oncebox_proof.
INSERT INTO oncebox_proof (digest, seq) VALUES (?1, ?2)
ON CONFLICT (digest) DO UPDATE SET seq = excluded.seq WHERE excluded.seq > oncebox_proof.seq;

-- name: proof_tail
-- Reads messages that other processes accepted, or that are newer than the last merge.
-- ?1 seq to continue after
-- Index: primary key of oncebox_message.
SELECT seq, digest FROM oncebox_message WHERE seq > ?1;
