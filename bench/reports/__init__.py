"""The common parts of all tables: their head, the description of the machine, and tables in
documents."""
