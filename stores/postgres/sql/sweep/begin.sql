-- Returns a row if this sweep may start: no other process sweeps, or the last one did not continue in time.
-- $1 now bigint or NULL (server clock)
-- $2 inbox smallint
-- $3 sweep uuid
-- Index: primary key of oncebox_inbox.
-- Lock order: the row of oncebox_inbox, until the transaction ends; skips it if locked.
SELECT 1 FROM oncebox_inbox
WHERE id = $2
  AND (sweeper IS NULL OR sweeper = $3
       OR sweeper_until < coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint))
FOR NO KEY UPDATE SKIP LOCKED
