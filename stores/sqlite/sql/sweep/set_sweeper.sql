UPDATE oncebox_inbox SET sweeper = ?2, sweeper_until = ?3 WHERE id = ?1
