"""The interface between the dialects and the rest of the server, and their description. It knows no
dialect by name."""
