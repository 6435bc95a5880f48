-- Whether an earlier entry with the same order key is unfinished; a poisoned one blocks too. Three partial indexes.
SELECT EXISTS (SELECT 1 FROM oncebox_entry WHERE handler = ?1 AND order_key = ?2)
    OR EXISTS (SELECT 1 FROM oncebox_running WHERE handler = ?1 AND order_key = ?2)
    OR EXISTS (SELECT 1 FROM oncebox_poisoned WHERE handler = ?1 AND order_key = ?2)
