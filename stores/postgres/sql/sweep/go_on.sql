-- A row if it is this sweep's turn. Waits for whoever looks at this moment whether it may begin: that one may hold the row though it
-- is not its turn, and if both went away nobody would sweep. Whose turn it is not waits for nobody. $1 inbox, $2 the sweep.
SELECT 1 FROM @inbox WHERE id = $1 AND sweeper = $2 FOR NO KEY UPDATE
