-- Number of entries that wait or run.
SELECT (SELECT count(*) FROM oncebox_entry) + (SELECT count(*) FROM oncebox_scheduled)
