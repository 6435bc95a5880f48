-- Records an applied migration.
-- $1 version integer
-- $2 name text
INSERT INTO oncebox_schema (version, name) VALUES ($1, $2)
