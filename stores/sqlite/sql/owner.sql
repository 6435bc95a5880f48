-- name: owner_enter
-- Registers a store that claims. Returns its number, the same for the same name.
-- ?1 name
-- ?2 boot id of the machine
-- Index: unique (name) of oncebox_owner.
INSERT INTO oncebox_owner (name, boot) VALUES (?1, ?2)
ON CONFLICT (name) DO UPDATE SET boot = excluded.boot
RETURNING id;

-- name: owner_leave
-- Deletes an owner that holds no entry.
-- ?1 owner
-- Index: primary key of oncebox_owner.
DELETE FROM oncebox_owner WHERE id = ?1 AND NOT EXISTS (SELECT 1 FROM oncebox_running r WHERE r.owner = ?1);

-- name: owner_others
-- Lists all other owners, and true for those that hold an entry. There is a row per process that claims.
-- ?1 owner or NULL
-- Index: none: the tables are small.
SELECT o.id, o.name, o.boot, EXISTS (SELECT 1 FROM oncebox_running r WHERE r.owner = o.id)
FROM oncebox_owner o WHERE ?1 IS NULL OR o.id <> ?1;

-- name: owner_own
-- Stores the owner of the entries that the first claim of a process took.
-- ?1 claim_id
-- ?2 owner
-- Index: primary key of oncebox_running.
UPDATE oncebox_running SET owner = ?2 WHERE claim_id = ?1;
