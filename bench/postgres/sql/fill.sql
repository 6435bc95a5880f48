-- Adds finished messages with keys, payloads and history, numbered after the few that registered the names.
CREATE TEMP TABLE filled AS
SELECT (1::bigint << 36) | (n::bigint << 6) | (get_byte(sha256(n::text::bytea), 0) % 4) AS seq, sha256(n::text::bytea) AS digest
FROM generate_series(100001, 100000 + {count}) n;
INSERT INTO {schema}.oncebox_proof (seq, received_at, lane, inbox, digest, fingerprint, handlers)
SELECT seq, 1700000000000, get_byte(digest, 0) % 4, 1, digest, substr(digest, 1, 16), '\x0001' FROM filled;
INSERT INTO {schema}.oncebox_message (seq, received_at, lane, inbox, digest, source, id, type, headers, payload)
SELECT seq, 1700000000000, seq & 63, 1, digest, 'bench', digest, 'bench', '', convert_to(rpad('{"order":7,"note":"', 254, 'x') || '"}', 'UTF8')
FROM filled;
INSERT INTO {schema}.oncebox_outcome (seq, token, at, attempts, crashes, generation, lane, handler, status)
SELECT seq, 1, 1700000000000, 0, 0, 0, seq & 63, 1, 'completed' FROM filled;
SELECT setval('{schema}.oncebox_counter', 100000 + {count} + 1);
DROP TABLE filled;
VACUUM ANALYZE {schema}.oncebox_proof;
VACUUM ANALYZE {schema}.oncebox_message;
VACUUM ANALYZE {schema}.oncebox_outcome;
CHECKPOINT;
