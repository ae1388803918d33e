"""DeepLX, as plug-ins of readers send it: its route and the shape of its bodies."""
