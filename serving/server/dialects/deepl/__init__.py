"""DeepL's API, version 2: its routes and the shape of its bodies."""
