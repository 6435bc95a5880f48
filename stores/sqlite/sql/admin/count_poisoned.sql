-- Counts poisoned entries by handler. The row of a paused order key has a negative number.
-- Index: none: it scans oncebox_poisoned.
SELECT handler, count(*) FROM oncebox_poisoned WHERE seq > 0 GROUP BY handler
