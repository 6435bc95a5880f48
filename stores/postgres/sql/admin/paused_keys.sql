-- Lists order keys that an operator paused. Their rows have numbers below the first partition.
-- $1 inbox smallint
-- $2 lanes smallint[]: all of them
-- Index: primary key of oncebox_poisoned.
SELECT h.key, e.error, e.order_key FROM oncebox_poisoned e JOIN oncebox_handler h ON h.id = e.handler
WHERE h.inbox = $1 AND e.lane = ANY ($2::int2[]) AND e.seq < 68719476736
