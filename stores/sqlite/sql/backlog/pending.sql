-- How many entries of a handler wait, counted up to a limit: those with a due time, and those behind others.
SELECT count(*) FROM (
    SELECT 1 FROM oncebox_entry WHERE handler = ?1 AND due <> 9223372036854775807
    UNION ALL
    SELECT 1 FROM oncebox_entry WHERE handler = ?1 AND due = 9223372036854775807
    LIMIT ?2
)
