"""Products that people use instead of this engine, each in its own process.

The modules of this package run in a rival's environment, which has neither this project nor its
dependencies: they import nothing of it, and a product only when it is loaded. Only `engine` runs in
this project's environment. `bench.systems.processes.rivals` starts them.
"""
