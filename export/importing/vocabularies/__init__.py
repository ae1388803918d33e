"""The text side of imported checkpoints: pieces, tokens of Moses, tags of languages. Nothing here
knows weights."""
