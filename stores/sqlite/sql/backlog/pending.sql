-- How many entries of a handler wait, counted up to a limit.
SELECT count(*) FROM (SELECT 1 FROM oncebox_entry WHERE handler = ?1 LIMIT ?2)
