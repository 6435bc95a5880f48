-- All effects: row id, message, payload variant, handler, process.
-- Index: primary key of chaos_effect.
SELECT id, m, v, h, life FROM chaos_effect ORDER BY id
