SELECT upto, behind FROM oncebox_sweep_cursor WHERE inbox = ?1 AND span = ?2 AND digest = ?3
