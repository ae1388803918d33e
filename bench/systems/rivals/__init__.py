"""Products that people use in this engine's place, each in a process of its own.

The modules of this room run in a rival's environment, which has neither this project nor what it
needs: they import nothing of it, and a product only when it is loaded. `engine` alone runs in this
project's. `bench.systems.processes.rivals` starts them.
"""
