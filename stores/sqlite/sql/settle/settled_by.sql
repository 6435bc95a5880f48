-- Returns true if this claim brought the entry to its state: then the repeat of a settlement without an answer is no
-- lost lease. An outcome counts only while no later state exists.
-- ?1 seq
-- ?2 handler
-- ?3 token
-- ?4 status
-- Index: the primary keys of the tables of entries.
SELECT CASE ?4
    WHEN 'pending' THEN EXISTS (SELECT 1 FROM oncebox_entry WHERE seq = ?1 AND handler = ?2 AND token = ?3)
        -- It may have been parked at once.
        OR EXISTS (SELECT 1 FROM oncebox_poisoned WHERE seq = ?1 AND handler = ?2 AND token = ?3 AND in_line = 'parked')
    WHEN 'poisoned' THEN EXISTS (SELECT 1 FROM oncebox_poisoned WHERE seq = ?1 AND handler = ?2 AND token = ?3)
    ELSE EXISTS (SELECT 1 FROM oncebox_outcome WHERE seq = ?1 AND handler = ?2 AND token = ?3 AND status = ?4)
        AND NOT EXISTS (SELECT 1 FROM oncebox_entry WHERE seq = ?1 AND handler = ?2)
        AND NOT EXISTS (SELECT 1 FROM oncebox_poisoned WHERE seq = ?1 AND handler = ?2)
        AND NOT EXISTS (SELECT 1 FROM oncebox_running WHERE seq = ?1 AND handler = ?2)
        AND NOT EXISTS (SELECT 1 FROM oncebox_outcome WHERE seq = ?1 AND handler = ?2 AND token > ?3)
END
