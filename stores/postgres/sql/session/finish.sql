-- Completes a claim in the round trip that commits it; told to each connection of handlers once. It fails unless the claim holds, and
-- with it the commit behind it: its row has no number then, or no token if this is not the transaction that the handler was given.
-- $1 now or nothing, $2 lane, $3 handler, $4 number, $5 token, $6 claim id.
PREPARE finish_oncebox (bigint, smallint, smallint, bigint, bigint, uuid) AS
WITH ended AS (
    DELETE FROM oncebox_entry WHERE lane = $2 AND handler = $3 AND seq = $4 AND token = $5 AND claim_id = $6
    RETURNING seq, token, attempts, crashes, generation, error
)
INSERT INTO oncebox_outcome (seq, token, at, attempts, crashes, generation, lane, handler, status, error)
SELECT CASE WHEN own.yes THEN e.seq ELSE 0 END, CASE WHEN own.yes THEN e.token END,
       coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint), coalesce(e.attempts, 0),
       coalesce(e.crashes, 0), coalesce(e.generation, 0), $2, $3, 'completed', e.error
FROM (SELECT coalesce(current_setting('oncebox.handler', true) = 'on', false) AS yes) own LEFT JOIN ended e ON true;
