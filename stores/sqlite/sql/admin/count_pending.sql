-- Counts pending entries by handler.
-- Index: oncebox_entry_due and oncebox_entry_order, which together have every entry.
SELECT handler, sum(waiting) FROM (
    SELECT handler, count(*) AS waiting FROM oncebox_entry WHERE due <> 9223372036854775807 GROUP BY handler
    UNION ALL
    SELECT handler, count(*) FROM oncebox_entry WHERE due = 9223372036854775807 GROUP BY handler
) GROUP BY handler
