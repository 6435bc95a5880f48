-- Id and reason of every quarantined message.
SELECT convert_from(message_id, 'UTF8'), reason FROM oncebox_quarantine
