INSERT INTO oncebox_sweep_cursor (inbox, span, digest, upto, behind) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (inbox, span) DO UPDATE SET digest = excluded.digest, upto = excluded.upto, behind = excluded.behind
