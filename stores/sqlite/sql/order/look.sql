-- What an entry meets that joins a line: what holds it back, of which one that parks says more than one that only blocks; the
-- number of the line; the one that may go; the first of those that wait. One step into an index for each, however many wait. Each
-- kind of poisoned one is asked for by itself: a list of them would be made into a table first, every time. ?3 its number.
SELECT CASE WHEN EXISTS (SELECT 1 FROM oncebox_poisoned WHERE handler = ?1 AND order_key = ?2) THEN CASE
           WHEN EXISTS (SELECT 1 FROM oncebox_poisoned WHERE handler = ?1 AND order_key = ?2 AND in_line = 'parks' AND seq < ?3) THEN 'parks'
           WHEN EXISTS (SELECT 1 FROM oncebox_poisoned WHERE handler = ?1 AND order_key = ?2 AND in_line = 'blocks' AND seq < ?3) THEN 'blocks'
       END END,
       l.number, l.seq,
       (SELECT seq FROM oncebox_entry WHERE handler = ?1 AND line = l.number AND due = 9223372036854775807 ORDER BY seq LIMIT 1)
FROM (SELECT 1) LEFT JOIN oncebox_line l ON l.handler = ?1 AND l.order_key = ?2
