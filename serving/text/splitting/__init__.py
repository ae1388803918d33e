"""Where sentences begin and end in a text; nothing of markup, nor of translations."""
