-- Number of marks that failovers lost, as the store reports them.
SELECT coalesce(sum(lost_marks), 0) FROM oncebox_timeline
