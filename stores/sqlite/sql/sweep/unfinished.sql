-- Returns true if a message has a pending or poisoned entry, or an outcome inside its window.
-- ?1 seq
-- ?2 at, end of the window
-- Index: primary keys of oncebox_entry, oncebox_poisoned and oncebox_outcome.
SELECT EXISTS (SELECT 1 FROM oncebox_entry WHERE seq = ?1)
    OR EXISTS (SELECT 1 FROM oncebox_poisoned WHERE seq = ?1)
    OR EXISTS (SELECT 1 FROM oncebox_outcome WHERE seq = ?1 AND at > ?2)
