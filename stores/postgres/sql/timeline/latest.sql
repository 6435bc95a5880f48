-- Lists the latest changes of the timeline, newest first.
-- $1 limit bigint
-- Index: primary key of oncebox_timeline.
SELECT epoch, noticed_at, former, timeline, lost_claims, lost_messages, lost_from, lost_until, lost_marks,
    unnamed, unnamed_since
FROM oncebox_timeline ORDER BY epoch DESC LIMIT $1
