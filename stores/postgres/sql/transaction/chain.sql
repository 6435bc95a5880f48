-- Commits, and begins the next handler's transaction as `begin.sql` does. Not AND CHAIN: the next one must not inherit
-- settings.
COMMIT;
BEGIN;
SET LOCAL oncebox.handler = 'on'
