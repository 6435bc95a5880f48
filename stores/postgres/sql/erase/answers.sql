-- What earlier operations on a key were answered. $1 key. Relies on "oncebox_operation_digest".
SELECT id, answer FROM oncebox_operation WHERE digest = $1 AND answer <> ''
