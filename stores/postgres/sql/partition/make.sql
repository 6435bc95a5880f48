SELECT oncebox_make_partition($1)
