"""Bytes from anywhere into a folder: downloads and archives; none knows who publishes a model."""
