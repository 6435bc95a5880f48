SELECT count, first, last FROM @absorbed WHERE lane = $1 & 63 AND seq = $1
