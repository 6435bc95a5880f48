-- Lines that an operator holds back.
SELECT handler, error FROM oncebox_poisoned WHERE seq < 0
