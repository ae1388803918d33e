"""TensorRT engines of a bundle: their profiles, their caches and how they are built."""
