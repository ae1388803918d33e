"""Tables: those columns of CSV and TSV, or keys of JSON Lines, that somebody has chosen."""
