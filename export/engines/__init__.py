"""TensorRT engines of a bundle: their profiles, their caches and their building."""
