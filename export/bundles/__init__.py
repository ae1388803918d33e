"""Checkpoints of this project to bundles and back, with card and figures. It reads no checkpoint of
others."""
