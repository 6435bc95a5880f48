-- Returns true if the server is a standby.
SELECT pg_is_in_recovery()
