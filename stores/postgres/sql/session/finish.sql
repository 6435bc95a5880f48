-- Prepares the completion of a claim, which then runs in the round trip of its commit. Runs once per connection of
-- handlers. The statement fails, and the commit with it, unless the claim holds: its row has no number then, or no token
-- if this is not the transaction that the handler was given.
-- $1 now bigint or NULL (server clock)
-- $2 lane smallint
-- $3 handler smallint
-- $4 seq bigint
-- $5 token bigint
-- $6 claim_id uuid
-- Index: primary key of oncebox_entry.
-- Lock order: the row of oncebox_entry.
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
