INSERT INTO @handler (inbox, key) VALUES ($1, $2) ON CONFLICT (inbox, key) DO NOTHING
