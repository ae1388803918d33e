"""Text in files: pairs, tables and labelled lines are read, cleaned and changed by noise. Nothing
here knows a vocabulary or a batch."""
