-- The next handler that has marks: one step into oncebox_mark_age.
SELECT min(handler) FROM oncebox_mark WHERE inbox = ?1 AND handler > ?2
