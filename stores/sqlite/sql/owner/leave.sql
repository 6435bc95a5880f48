-- Forgets an owner, unless it has something in hand. ?1 its number.
DELETE FROM oncebox_owner WHERE id = ?1 AND NOT EXISTS (SELECT 1 FROM oncebox_running r WHERE r.owner = ?1)
