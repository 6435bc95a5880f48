-- A row if it is this sweep's turn. Waits for whoever looks at this moment whether it may begin: that one may hold the row though it
-- is not its turn, and if both went away nobody would sweep. Whose turn is over waits for nobody: another one may have taken it.
-- $1 now or nothing, $2 inbox, $3 the sweep.
SELECT 1 FROM oncebox_inbox
WHERE id = $2 AND sweeper = $3
  AND sweeper_until >= coalesce($1, (extract(epoch FROM statement_timestamp()) * 1000)::bigint)
FOR NO KEY UPDATE
