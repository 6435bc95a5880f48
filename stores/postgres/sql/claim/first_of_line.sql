-- Whether nothing earlier waits or blocks, and nothing at all runs, under another key of the handler. Only handlers that were
-- renamed have any. Of the entry `e`, on behalf of the want of `l`.
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
