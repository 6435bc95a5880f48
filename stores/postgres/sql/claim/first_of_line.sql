-- Part of `claim` and `suspect`: true if entry `e` is first in its queue under all keys of a renamed handler. No earlier
-- entry may wait or block under another key, and none may run. `l` is the target.
-- $7 want integer[] (by key of a renamed handler)
-- $8 handler smallint[]
-- Index: oncebox_scheduled_order, oncebox_entry_order, oncebox_poisoned_order.
(e.order_key IS NULL OR NOT l.renamed OR NOT EXISTS (
    SELECT 1 FROM unnest($7::int4[], $8::int2[]) AS k (want, handler)
    WHERE k.want = l.want AND k.handler <> e.handler AND (
        EXISTS (SELECT 1 FROM oncebox_scheduled o
            WHERE o.lane = e.lane AND o.handler = k.handler AND o.order_key = e.order_key AND o.seq < e.seq)
        OR EXISTS (SELECT 1 FROM oncebox_entry o
            WHERE o.lane = e.lane AND o.handler = k.handler AND o.order_key = e.order_key
              AND (o.token IS NOT NULL OR o.seq < e.seq))
        OR EXISTS (SELECT 1 FROM oncebox_poisoned o
            WHERE o.lane = e.lane AND o.handler = k.handler AND o.order_key = e.order_key
              AND o.in_line IN ('blocks', 'parks') AND o.seq < e.seq)
    )
))
