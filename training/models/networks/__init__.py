"""Whole networks, one module per architecture. The parts that several of them share are in the
packages below."""
