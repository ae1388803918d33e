"""Files as bytes: archives, encodings, trees of XML, and how they are written; no units of text."""
