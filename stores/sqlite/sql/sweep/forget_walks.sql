-- Those of windows that are none any more.
DELETE FROM oncebox_walk WHERE inbox = ?1 AND digest <> ?2
