SELECT seq FROM oncebox_running
