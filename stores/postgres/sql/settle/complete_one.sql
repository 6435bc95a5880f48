-- Completes one claim under its fence; the same as for many, but planned once by every session. $1 now or nothing, $2 lane,
-- $3 handler, $4 number, $5 token, $6 claim id.
WITH ended AS (
    DELETE FROM oncebox_entry
    WHERE lane = $2 AND handler = $3 AND seq = $4 AND token = $5 AND claim_id = $6
      -- In the transaction that a handler was given, or not at all.
      AND current_setting('oncebox.handler', true) = 'on'
    RETURNING seq, lane, handler, token, attempts, crashes, generation, error
)
INSERT INTO oncebox_outcome (seq, token, at, attempts, crashes, generation, lane, handler, status, error)
SELECT seq, token, coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint), coalesce(attempts, 0),
       coalesce(crashes, 0), coalesce(generation, 0), lane, handler, 'completed', error
FROM ended
