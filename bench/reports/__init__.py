"""What all tables share: their head, the machine, and tables in documents."""
