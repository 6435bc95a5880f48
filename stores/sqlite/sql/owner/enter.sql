-- Registers a store that claims. Returns its number, the same for the same name.
-- ?1 name
-- ?2 boot id of the machine
-- Index: unique (name) of oncebox_owner.
INSERT INTO oncebox_owner (name, boot) VALUES (?1, ?2)
ON CONFLICT (name) DO UPDATE SET boot = excluded.boot
RETURNING id
