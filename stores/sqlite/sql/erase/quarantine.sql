-- Removes what was quarantined under a key. ?1 key, ?2 inbox.
DELETE FROM oncebox_quarantine WHERE digest = ?1 AND inbox = ?2
