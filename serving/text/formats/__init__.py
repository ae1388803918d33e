"""HTML, XML and Markdown as tokens; nothing is put back into them."""
