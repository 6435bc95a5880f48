SELECT m, h, count(*) FROM chaos_effect GROUP BY m, h HAVING count(*) > 1
