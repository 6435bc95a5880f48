-- The handlers under which an entry may be stored that is looked for under some: those that turned out to be one with them.
-- Asked while the key of the message is locked, because what a process remembers of this may be old. $1 the handlers.
SELECT h.id FROM oncebox_handler h
WHERE coalesce(h.same_as, h.id) IN (SELECT coalesce(o.same_as, o.id) FROM oncebox_handler o WHERE o.id = ANY ($1::int2[]))
