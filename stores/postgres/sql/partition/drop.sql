SELECT oncebox_drop_partition($1, $2)
