-- What keys of an inbox are known. $1 inbox, $2 keys.
SELECT key, handler FROM oncebox_handler_key WHERE inbox = $1 AND key = ANY ($2::text[])
