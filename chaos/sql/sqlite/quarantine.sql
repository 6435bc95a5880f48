-- Id and reason of every quarantined message.
SELECT CAST(message_id AS TEXT), reason FROM oncebox_quarantine
