SELECT @make_partition($1)
