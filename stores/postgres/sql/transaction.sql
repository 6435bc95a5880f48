-- name: transaction_begin
-- Begins a handler's transaction, and marks it as the store's for as long as it lasts: a handler is able to end it.
BEGIN;
SET LOCAL oncebox.handler = 'on';

-- name: transaction_begin_read
-- Begins a transaction with one view of all tables, for operators.
BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;

-- name: transaction_begin_store
-- Begins a transaction whose statements see what others committed, whatever the server's default is.
BEGIN ISOLATION LEVEL READ COMMITTED;

-- name: transaction_chain
-- Commits, and begins the next handler's transaction as `begin.sql` does. Not AND CHAIN: the next one must not inherit
-- settings.
COMMIT;
BEGIN;
SET LOCAL oncebox.handler = 'on';

-- name: transaction_commit
-- Commits the transaction.
COMMIT;

-- name: transaction_probe
-- Returns true if this is still the transaction that the handler was given. Fails in an aborted one.
SELECT coalesce(current_setting('oncebox.handler', true) = 'on', false);

-- name: transaction_rollback
-- Rolls the transaction back.
ROLLBACK;
