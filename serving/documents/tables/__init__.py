"""Tables: the chosen columns of CSV and TSV, or the chosen keys of JSON Lines."""
