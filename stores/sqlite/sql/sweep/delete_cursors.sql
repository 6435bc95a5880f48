-- Those of windows that are none any more.
DELETE FROM oncebox_sweep_cursor WHERE inbox = ?1 AND digest <> ?2
