-- Marks a key for a handler: see the function. Returns whether the tables are those of the store, whether no other transaction is at
-- the key, whether this mark is the first, and the fingerprint of an earlier one.
-- $1 lock; $2 now or nothing; $3 lane; $4 digest; $5 inbox; $6 handler key; $7 fingerprint or nothing; $8 identity of the tables, as text.
SELECT home, open, marked, known FROM oncebox_mark($1, $2, $3, $4, $5, $6, $7, $8::text::uuid)
