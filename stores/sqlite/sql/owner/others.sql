-- All other owners, and whether each has something in hand. ?1 own number or nothing. A row for each process that claims.
SELECT o.id, o.name, o.boot, EXISTS (SELECT 1 FROM oncebox_running r WHERE r.owner = o.id)
FROM oncebox_owner o WHERE ?1 IS NULL OR o.id <> ?1
