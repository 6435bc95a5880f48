-- Lines that an operator holds back. $1 inbox, $2 all lanes.
SELECT h.key, e.error, e.order_key FROM oncebox_poisoned e JOIN oncebox_handler h ON h.id = e.handler
WHERE h.inbox = $1 AND e.lane = ANY ($2::int2[]) AND e.seq < 68719476736
