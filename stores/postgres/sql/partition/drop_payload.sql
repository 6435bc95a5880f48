SELECT @drop_payload($1, $2)
