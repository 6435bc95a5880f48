-- Counts running entries by handler.
-- Index: none: the table is small.
SELECT handler, count(*) FROM oncebox_running GROUP BY handler
