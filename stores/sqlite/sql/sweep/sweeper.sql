SELECT sweeper, sweeper_until FROM oncebox_inbox WHERE id = ?1
