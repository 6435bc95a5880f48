-- Deletes the errors of a message's outcomes.
-- ?1 seq
-- Index: primary key of oncebox_outcome.
UPDATE oncebox_outcome SET error = NULL WHERE seq = ?1 AND error IS NOT NULL
