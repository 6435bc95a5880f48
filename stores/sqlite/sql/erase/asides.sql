-- Removes what was kept aside under a key. ?1 key, ?2 inbox.
DELETE FROM oncebox_aside WHERE digest = ?1 AND inbox = ?2
