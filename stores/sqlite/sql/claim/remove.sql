-- What `take` took, as one range of the primary key.
DELETE FROM oncebox_entry
WHERE handler = ?1 AND (due, seq) <= (?2, ?3) AND crashes = 0
