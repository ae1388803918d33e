"""The interface between the dialects and the rest of the server, and their description. It contains
no name of a dialect."""
