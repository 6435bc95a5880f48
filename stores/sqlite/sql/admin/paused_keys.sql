-- Lists order keys that an operator paused. Their rows have negative numbers.
-- Index: primary key of oncebox_poisoned.
SELECT handler, error FROM oncebox_poisoned WHERE seq < 0
