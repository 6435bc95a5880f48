SELECT oncebox_drop_payload($1, $2)
