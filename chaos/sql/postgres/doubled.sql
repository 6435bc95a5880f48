-- Messages and handlers with more than one effect, and the number.
-- Index: none, the checker scans.
SELECT m, h, count(*) FROM chaos_effect GROUP BY m, h HAVING count(*) > 1
