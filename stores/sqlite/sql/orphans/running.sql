-- What workers have of a handler: how many, since when the first was due, and until when the last is held.
SELECT count(*), min(due), max(lease_until) FROM oncebox_running WHERE handler = ?1
