-- Stores the sweep cursor of a window.
-- ?1 inbox
-- ?2 span in ms
-- ?3 digest of all windows
-- ?4 upto, last number
-- ?5 behind, numbers that need another look
-- Index: primary key of oncebox_sweep_cursor.
INSERT INTO oncebox_sweep_cursor (inbox, span, digest, upto, behind) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (inbox, span) DO UPDATE SET digest = excluded.digest, upto = excluded.upto, behind = excluded.behind
