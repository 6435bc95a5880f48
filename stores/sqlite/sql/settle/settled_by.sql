-- Whether this very claim brought the entry where it is: then the repeat of an unanswered settlement is not a lost
-- lease. An outcome counts only while nothing came after it.
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
