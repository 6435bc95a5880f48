-- Lists the handlers that are one with some handlers. Runs while the key of the message is locked, because a process's
-- cache may be out of date.
-- $1 handlers smallint[]
-- Index: primary key of oncebox_handler.
SELECT h.id FROM oncebox_handler h
WHERE coalesce(h.same_as, h.id) IN (SELECT coalesce(o.same_as, o.id) FROM oncebox_handler o WHERE o.id = ANY ($1::int2[]))
