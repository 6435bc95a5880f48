SELECT EXISTS (SELECT 1 FROM oncebox_entry WHERE seq = ?1)
    OR EXISTS (SELECT 1 FROM oncebox_poisoned WHERE seq = ?1)
    OR EXISTS (SELECT 1 FROM oncebox_outcome WHERE seq = ?1 AND at > ?2)
