"""Sessions, memory and graphs of CUDA and TensorRT. Nothing of it is imported without a GPU."""
