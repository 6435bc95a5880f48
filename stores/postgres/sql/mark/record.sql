-- Leaves a result with a mark. Once for each mark: who comes later changes nothing. $1 result, $2 lane, $3 digest, $4 handler.
UPDATE oncebox_mark SET result = $1 WHERE lane = $2 AND digest = $3 AND handler || '' = $4 AND result IS NULL
