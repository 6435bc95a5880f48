SELECT id, m, v, h, life FROM chaos_effect ORDER BY id
