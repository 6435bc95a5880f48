SELECT count(*) FROM oncebox_message m WHERE m.seq <= (SELECT merged FROM oncebox_counter)
AND NOT EXISTS (SELECT 1 FROM oncebox_proof p WHERE p.digest = m.digest AND p.seq = m.seq)
