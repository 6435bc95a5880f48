-- Reads the sweep cursor of a window.
-- ?1 inbox
-- ?2 span in ms
-- ?3 digest of all windows
-- Index: primary key of oncebox_sweep_cursor.
SELECT upto, behind FROM oncebox_sweep_cursor WHERE inbox = ?1 AND span = ?2 AND digest = ?3
