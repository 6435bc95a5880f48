-- Commits, and begins the next handler's transaction as `begin.sql` does. Not AND CHAIN: the next one is not to inherit what this
-- one has set.
COMMIT;
BEGIN;
SET LOCAL oncebox.handler = 'on'
