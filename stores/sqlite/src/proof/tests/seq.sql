SELECT seq FROM oncebox_counter
