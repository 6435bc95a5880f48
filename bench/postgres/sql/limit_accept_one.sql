-- Inserts one message, with an entry if it is new.
-- $1 digest bytea
-- $2 received_at bigint in ms
-- $3 source text
-- $4 id text
-- $5 type text
-- $6 payload bytea
-- Index: unique digest of message.
WITH first AS (
    INSERT INTO message (digest, received_at, source, id, type, payload) VALUES ($1, $2, $3, $4, $5, $6)
    ON CONFLICT (digest) DO NOTHING RETURNING seq
)
INSERT INTO work (seq, handler) SELECT seq, 1 FROM first
