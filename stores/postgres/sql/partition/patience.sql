-- How long dropping may wait for others to finish with the tables; everybody else waits behind it.
SET LOCAL lock_timeout = '250ms'
