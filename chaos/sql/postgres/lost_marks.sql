SELECT coalesce(sum(lost_marks), 0) FROM oncebox_timeline
