-- Returns a row if it is this sweep's turn. Waits for a process that checks at this moment whether it may begin: that
-- process may hold the row though it is not its turn, and if both gave up, neither would sweep. A sweep whose turn is
-- over does not wait: another one may have taken the turn.
-- $1 now bigint or NULL (server clock)
-- $2 inbox smallint
-- $3 sweep uuid
-- Index: primary key of oncebox_inbox.
-- Lock order: the row of oncebox_inbox, until the transaction ends.
SELECT 1 FROM oncebox_inbox
WHERE id = $2 AND sweeper = $3
  AND sweeper_until >= coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint)
FOR NO KEY UPDATE
