-- What earlier operations on a key were answered. ?1 key. Relies on oncebox_operation_digest.
SELECT number, answer FROM oncebox_operation WHERE digest = ?1
