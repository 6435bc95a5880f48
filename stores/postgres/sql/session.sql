-- name: session_control
-- Settings of sessions that claim and settle: they find every row by its key.
SET SESSION enable_hashjoin = off;

-- name: session_finish
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

-- name: session_handlers
-- Settings of handlers' sessions. The server chooses their plans. `'5min'` stands for the time limit of a handler.
SET SESSION idle_in_transaction_session_timeout = '5min';
SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off';

-- name: session_hold_process
-- Begins a transaction, which keeps the server process of a connection, and reads that process.
-- Index: none; reads no table.
BEGIN;
SELECT pg_backend_pid();

-- name: session_ingest
-- Settings of sessions that accept: they join a batch with the new part of it, which is as long.
SET SESSION enable_nestloop = off;
SET SESSION work_mem = '16MB';

-- name: session_process
-- Reads the server process of a connection. A pooler in transaction mode lends that process to others afterwards.
-- Index: none; reads no table.
SELECT pg_backend_pid();

-- name: session_reads
-- Settings of sessions for operators. Hides the warning of a vacuum that finds the table locked.
SET SESSION client_min_messages = error;

-- name: session_store
-- Settings of all sessions of the store, once per connection. Through a pooler they are sent in every transaction, with LOCAL
-- instead of SESSION, and `true` instead of `false`. `'30s'` stands for the time limit of a statement. The tables are empty
-- when the server reads their statistics and full when it matters, so it must not choose the plans.
SET SESSION plan_cache_mode = force_generic_plan;
SET SESSION jit = off;
SET SESSION enable_seqscan = off;
SET SESSION enable_bitmapscan = off;
SET SESSION enable_mergejoin = off;
SET SESSION statement_timeout = '30s';
SET SESSION lock_timeout = '30s';
SET SESSION idle_in_transaction_session_timeout = '30s';
SET SESSION client_min_messages = error;
-- Statements within one call see what was committed since it began, whatever the server's default is.
SET SESSION default_transaction_isolation = 'read committed';
-- Acknowledged messages must be on disk, whatever the server's default is.
SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off';

-- name: session_wakeups
-- Settings of sessions that notify. A crash of the server may lose wake-ups.
SET SESSION synchronous_commit = off;
SET SESSION client_min_messages = error;
SET SESSION statement_timeout = '30s';
