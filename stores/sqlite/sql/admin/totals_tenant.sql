-- Counts the messages of one tenant, those without entries, the quarantined messages, and the stale ones of these.
-- ?1 inbox
-- ?2 tenant
-- Index: oncebox_message_tenant; oncebox_quarantine is scanned.
SELECT (SELECT count(*) FROM oncebox_message WHERE tenant = ?2 AND inbox = ?1),
       (SELECT count(*) FROM oncebox_message WHERE tenant = ?2 AND inbox = ?1 AND length(handlers) = 0),
       (SELECT count(*) FROM oncebox_quarantine WHERE tenant = ?2 AND inbox = ?1),
       (SELECT count(*) FROM oncebox_quarantine WHERE tenant = ?2 AND inbox = ?1 AND reason = 'stale')
