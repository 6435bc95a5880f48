-- Fed in digest order, one slice at a time, so that neighbours share pages. A newer message replaces one that was swept.
INSERT INTO oncebox_proof (digest, seq) VALUES (?1, ?2)
ON CONFLICT (digest) DO UPDATE SET seq = excluded.seq WHERE excluded.seq > oncebox_proof.seq
