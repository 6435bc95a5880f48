-- Inserts a batch of messages, with one entry for each new one.
-- $1 digest bytea[]
-- $2 received_at bigint[] in ms
-- $3 source text[]
-- $4 id text[]
-- $5 type text[]
-- $6 payload bytea[]
-- Index: unique digest of message.
WITH first AS (
    INSERT INTO message (digest, received_at, source, id, type, payload)
    SELECT * FROM unnest($1::bytea[], $2::int8[], $3::text[], $4::text[], $5::text[], $6::bytea[])
    ON CONFLICT (digest) DO NOTHING RETURNING seq
)
INSERT INTO work (seq, handler) SELECT seq, 1 FROM first
