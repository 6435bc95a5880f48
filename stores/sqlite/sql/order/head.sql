-- The first entry of a line that does not run: one that was let go, or else the first that waits. One step into each index, however
-- many wait.
SELECT seq, due, not_before FROM (
    SELECT seq, due, not_before FROM oncebox_entry INDEXED BY oncebox_entry_head
    WHERE handler = ?1 AND order_key = ?2 AND due <> 9223372036854775807
    UNION ALL
    SELECT * FROM (
        SELECT seq, due, not_before FROM oncebox_entry INDEXED BY oncebox_entry_line
        WHERE handler = ?1 AND order_key = ?2 AND due = 9223372036854775807 ORDER BY seq LIMIT 1
    )
) ORDER BY seq LIMIT 1
