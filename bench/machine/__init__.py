"""The machine: processor, GPU, memory, time and load. Nothing here knows the measured systems."""
