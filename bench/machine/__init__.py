"""The machine: processor, GPU, memory, time and load. It knows no system."""
