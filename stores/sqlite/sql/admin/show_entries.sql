-- Everything that is or was to be done for one message.
SELECT seq, handler, 'pending', attempts, crashes, generation, due, NULL, error, NULL FROM oncebox_entry WHERE seq = ?1
UNION ALL
SELECT seq, handler, 'running', attempts, crashes, generation, lease_until, NULL, error, NULL FROM oncebox_running WHERE seq = ?1
UNION ALL
SELECT seq, handler, 'poisoned', attempts, crashes, generation, at, reason, error, in_line FROM oncebox_poisoned WHERE seq = ?1
UNION ALL
SELECT seq, handler, status, attempts, crashes, generation, at, NULL, error, NULL FROM oncebox_outcome WHERE seq = ?1
ORDER BY 2, 6
