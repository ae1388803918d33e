"""Systems that translate a file, as users run them, and where their time goes; no server."""
