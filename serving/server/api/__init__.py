"""What a dialect is to the rest of the server, and how it is described. It knows no dialect by
name."""
