-- Deletes proofs of one slice whose message was swept. Runs beside the merge of the same slice, which reads the same
-- pages.
-- ?1 digest, first of the slice
-- ?2 digest behind the slice
-- ?3 seq, last one to delete
-- Index: primary keys of oncebox_proof and oncebox_message.
DELETE FROM oncebox_proof
WHERE digest >= ?1 AND digest < ?2 AND seq <= ?3
  AND NOT EXISTS (SELECT 1 FROM oncebox_message m WHERE m.seq = oncebox_proof.seq)
