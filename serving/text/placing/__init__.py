"""From a translation back to a text: where markup and capitals go in it; no format is read."""
