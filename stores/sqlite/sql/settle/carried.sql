-- What an entry takes along when it goes on.
SELECT order_key, error FROM oncebox_running WHERE claim_id = ?1 AND seq = ?2 AND handler = ?3 AND token = ?4
