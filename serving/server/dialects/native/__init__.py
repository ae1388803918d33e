"""This project's own API: its routes and the shape of its bodies."""
