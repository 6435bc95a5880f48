-- Whether this very claim settled the entry before: then a repeat of an unanswered settlement is not a lost lease.
SELECT EXISTS (SELECT 1 FROM oncebox_outcome WHERE seq = ?1 AND handler = ?2 AND token = ?3)
    OR EXISTS (SELECT 1 FROM oncebox_entry WHERE seq = ?1 AND handler = ?2 AND token = ?3)
    OR EXISTS (SELECT 1 FROM oncebox_poisoned WHERE seq = ?1 AND handler = ?2 AND token = ?3)
