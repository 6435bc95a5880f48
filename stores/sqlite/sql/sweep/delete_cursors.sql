-- Deletes cursors of former windows.
-- ?1 inbox
-- ?2 digest of all windows
-- Index: primary key of oncebox_sweep_cursor.
DELETE FROM oncebox_sweep_cursor WHERE inbox = ?1 AND digest <> ?2
