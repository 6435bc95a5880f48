-- Completes one claim under its fence, inside the transaction that its handler was given. Each session plans it once.
-- $1 now bigint or NULL (server clock)
-- $2 lane smallint
-- $3 handler smallint
-- $4 seq bigint
-- $5 token bigint
-- $6 claim_id uuid
-- Index: primary key of oncebox_entry.
-- Lock order: the row of oncebox_entry.
WITH ended AS (
    DELETE FROM oncebox_entry
    WHERE lane = $2 AND handler = $3 AND seq = $4 AND token = $5 AND claim_id = $6
      -- Only in the transaction that the handler was given.
      AND current_setting('oncebox.handler', true) = 'on'
    RETURNING seq, lane, handler, token, attempts, crashes, generation, error
)
INSERT INTO oncebox_outcome (seq, token, at, attempts, crashes, generation, lane, handler, status, error)
SELECT seq, token, coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint), coalesce(attempts, 0),
       coalesce(crashes, 0), coalesce(generation, 0), lane, handler, 'completed', error
FROM ended
