"""The text side of imported checkpoints: pieces, tokens of Moses, tags of languages. It knows no
weights."""
