"""Passes on what a position takes from others: attention, convolutions, their masks and turns."""
