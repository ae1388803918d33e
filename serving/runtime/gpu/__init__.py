"""Sessions, memory and graphs of CUDA and TensorRT. Without a GPU nothing of it is imported."""
