"""Administration: its routes and the shape of its bodies."""
