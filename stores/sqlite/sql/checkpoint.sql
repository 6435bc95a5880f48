-- name: checkpoint_truncate
-- Moves the write-ahead log into the file and empties it. Returns (busy, pages, moved): busy is 1 if another connection
-- read or wrote for longer than the busy timeout. Not inside a transaction.
PRAGMA wal_checkpoint(TRUNCATE);
