"""Sampling: outputs that are drawn token by token after a prompt, without beams."""
