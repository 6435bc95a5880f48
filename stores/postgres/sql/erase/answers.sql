-- What earlier operations on a key were answered. $1 key. Relies on #operation_digest.
SELECT id, answer FROM @operation WHERE digest = $1 AND answer <> ''
