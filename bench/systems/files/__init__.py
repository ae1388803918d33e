"""Systems that translate a file as users run them, without a server, and how they spend their
time."""
