"""Outputs that are drawn token by token, from a prompt on; no beam."""
