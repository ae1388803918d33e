"""Who may ask, how often and how much: keys, accounts, limits, and what they have used. Contains
nothing about bodies, models or dialects."""
