SELECT lanes FROM @meta
