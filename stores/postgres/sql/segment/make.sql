SELECT @make_segment($1)
