SELECT upto, behind FROM oncebox_walk WHERE inbox = ?1 AND span = ?2 AND digest = ?3
