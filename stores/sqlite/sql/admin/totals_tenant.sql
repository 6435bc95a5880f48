SELECT (SELECT count(*) FROM oncebox_message WHERE tenant = ?2 AND inbox = ?1),
       (SELECT count(*) FROM oncebox_message WHERE tenant = ?2 AND inbox = ?1 AND length(handlers) = 0),
       (SELECT count(*) FROM oncebox_quarantine WHERE tenant = ?2 AND inbox = ?1),
       (SELECT count(*) FROM oncebox_quarantine WHERE tenant = ?2 AND inbox = ?1 AND reason = 'stale')
