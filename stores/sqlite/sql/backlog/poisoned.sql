-- Counts poisoned entries by handler, up to a limit of all: beyond it an operator has enough to read. The row of a
-- paused order key has a negative number and does not count.
-- ?1 limit
-- Index: primary key of oncebox_poisoned.
SELECT handler, count(*) FROM (SELECT handler FROM oncebox_poisoned WHERE seq > 0 LIMIT ?1) GROUP BY handler
