-- Finds the message of a digest in the merged part of the proof.
-- ?1 digest
-- Index: primary key of oncebox_proof.
SELECT seq FROM oncebox_proof WHERE digest = ?1
