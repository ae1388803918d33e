"""Google Translate's API, version 2 (Basic): its routes and the shape of its bodies."""
