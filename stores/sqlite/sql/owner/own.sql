-- Gives what the first claim of a process took to that process. ?1 claim id, ?2 number of the owner.
UPDATE oncebox_running SET owner = ?2 WHERE claim_id = ?1
