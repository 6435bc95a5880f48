-- How many wait for a handler, counted up to a limit.
SELECT count(*) FROM (SELECT 1 FROM oncebox_entry WHERE handler = ?1 LIMIT ?2)
