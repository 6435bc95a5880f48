INSERT INTO oncebox_window (inbox, handler, span, until) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (inbox, handler, span) DO UPDATE SET until = max(until, excluded.until)
