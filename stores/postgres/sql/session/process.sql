-- Reads the server process of a connection. A pooler in transaction mode lends that process to others afterwards.
-- Index: none; reads no table.
SELECT pg_backend_pid()
