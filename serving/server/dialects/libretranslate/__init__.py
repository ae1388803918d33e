"""LibreTranslate's API: its routes and the shape of its bodies."""
