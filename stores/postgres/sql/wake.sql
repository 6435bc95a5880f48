-- name: wake_notify
-- Notifies the other processes of work.
-- $1 channel text
-- $2 sender text
SELECT pg_notify($1, $2);
