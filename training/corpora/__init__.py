"""Text as it lies in files: pairs, tables and labelled lines, read, cleaned and changed by noise.
It knows no vocabulary and no batch."""
