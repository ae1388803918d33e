"""Stored data as records, with their rules. No database library is needed here: dialects and the
server use them on servers without a store, too."""
