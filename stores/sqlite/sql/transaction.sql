-- name: transaction_begin
-- Begins a transaction and takes the write lock at once: a transaction that begins to write later could only fail.
BEGIN IMMEDIATE;

-- name: transaction_begin_read
-- Begins a transaction that only reads.
BEGIN;

-- name: transaction_commit
-- Commits the transaction.
COMMIT;

-- name: transaction_rollback
-- Rolls the transaction back.
ROLLBACK;
