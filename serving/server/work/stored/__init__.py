"""What requests use of the store: glossaries and translation memories."""
