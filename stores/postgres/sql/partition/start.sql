UPDATE oncebox_meta SET started_at = $1 WHERE started_at IS NULL
