SELECT @drop_partition($1, $2)
