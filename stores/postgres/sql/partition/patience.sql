-- Limits how long a drop waits for other users of the tables: all others wait behind it.
SET LOCAL lock_timeout = '250ms'
