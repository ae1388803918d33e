"""The models of a server: which there are, and how they are loaded, exchanged and ended. It answers
no request."""
