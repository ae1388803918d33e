"""Beam search: sentences, their hypotheses and the rows of a batch; nothing is drawn at random."""
