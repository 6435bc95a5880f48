-- Begins a transaction, which keeps the server process of a connection, and reads that process.
-- Index: none; reads no table.
BEGIN;
SELECT pg_backend_pid()
