"""The sizes and options of each architecture, as data; no module of PyTorch."""
