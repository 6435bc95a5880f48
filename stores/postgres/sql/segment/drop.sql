SELECT @drop_segment($1, $2)
