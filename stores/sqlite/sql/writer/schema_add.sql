-- Records an applied migration.
-- ?1 version
-- ?2 name
-- ?3 now
INSERT INTO oncebox_schema (version, name, applied_at) VALUES (?1, ?2, ?3)
