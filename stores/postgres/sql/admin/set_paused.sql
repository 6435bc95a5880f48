UPDATE @handler SET paused = $2 WHERE id = $1
