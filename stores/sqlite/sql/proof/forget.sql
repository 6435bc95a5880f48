-- Proofs of one slice whose message was swept. Runs beside the merge of the same slice, which touches the pages anyway.
DELETE FROM oncebox_proof
WHERE digest >= ?1 AND digest < ?2 AND seq <= ?3
  AND NOT EXISTS (SELECT 1 FROM oncebox_message m WHERE m.seq = oncebox_proof.seq)
