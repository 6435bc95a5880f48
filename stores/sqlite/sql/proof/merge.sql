-- Merges a digest into the proof. The caller goes in digest order, one slice at a time, so that neighbours share pages.
-- A newer message replaces a swept one.
-- ?1 digest
-- ?2 seq
-- Index: primary key of oncebox_proof.
INSERT INTO oncebox_proof (digest, seq) VALUES (?1, ?2)
ON CONFLICT (digest) DO UPDATE SET seq = excluded.seq WHERE excluded.seq > oncebox_proof.seq
