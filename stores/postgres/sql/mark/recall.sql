-- The result that was left with a mark. A statement of its own: the one that marks cannot see what was committed after it began.
-- $1 lane, $2 digest, $3 handler: put together, so that the index of ages is not walked along for it.
SELECT result FROM oncebox_mark WHERE lane = $1 AND digest = $2 AND handler || '' = $3
