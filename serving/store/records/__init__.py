"""What is kept, as records, with the rules that they obey. No database's library: dialects and the
server name them on servers that have no store, too."""
