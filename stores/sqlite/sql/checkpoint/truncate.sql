-- Moves everything from the write-ahead log into the file and empties the log. No parameters. Returns (busy, pages, moved): busy
-- is 1 if another connection read or wrote for longer than the busy timeout. Not inside a transaction.
PRAGMA wal_checkpoint(TRUNCATE)
