-- Lists all other owners, and true for those that hold an entry. There is a row per process that claims.
-- ?1 owner or NULL
-- Index: none: the tables are small.
SELECT o.id, o.name, o.boot, EXISTS (SELECT 1 FROM oncebox_running r WHERE r.owner = o.id)
FROM oncebox_owner o WHERE ?1 IS NULL OR o.id <> ?1
