-- Writes down who claims. ?1 name, ?2 boot id of the machine. Returns the number; the same for the same name.
INSERT INTO oncebox_owner (name, boot) VALUES (?1, ?2)
ON CONFLICT (name) DO UPDATE SET boot = excluded.boot
RETURNING id
