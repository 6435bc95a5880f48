INSERT INTO oncebox_mark (inbox, digest, handler, at) VALUES (?1, ?2, ?3, ?4) ON CONFLICT (digest, handler) DO NOTHING
