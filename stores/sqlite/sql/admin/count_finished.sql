-- Counts outcomes by handler and status.
-- Index: none: it scans oncebox_outcome.
SELECT handler, status, count(*) FROM oncebox_outcome GROUP BY handler, status
