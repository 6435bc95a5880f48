WITH first AS (
    INSERT INTO message (digest, received_at, source, id, type, payload) VALUES ($1, $2, $3, $4, $5, $6)
    ON CONFLICT (digest) DO NOTHING RETURNING seq
)
INSERT INTO work (seq, handler) SELECT seq, 1 FROM first
