-- Reads the state of an order queue for an entry that joins it: the effect of earlier poisoned entries, where `parks`
-- wins over `blocks`; the number of the queue; the entry that may run; and the first waiting one. Each takes one index
-- step, however many wait. Each kind of poisoned entry has its own subquery: SQLite would build a table from a list,
-- every time.
-- ?1 handler
-- ?2 order_key
-- ?3 seq of the entry
-- Index: oncebox_poisoned_order, primary key of oncebox_line, oncebox_entry_order.
SELECT CASE WHEN EXISTS (SELECT 1 FROM oncebox_poisoned WHERE handler = ?1 AND order_key = ?2) THEN CASE
           WHEN EXISTS (SELECT 1 FROM oncebox_poisoned WHERE handler = ?1 AND order_key = ?2 AND in_line = 'parks' AND seq < ?3) THEN 'parks'
           WHEN EXISTS (SELECT 1 FROM oncebox_poisoned WHERE handler = ?1 AND order_key = ?2 AND in_line = 'blocks' AND seq < ?3) THEN 'blocks'
       END END,
       l.number, l.seq,
       (SELECT seq FROM oncebox_entry WHERE handler = ?1 AND line = l.number AND due = 9223372036854775807 ORDER BY seq LIMIT 1)
FROM (SELECT 1) LEFT JOIN oncebox_line l ON l.handler = ?1 AND l.order_key = ?2
