"""What layers are put together of, each a module of its own; none knows a layer or a network."""
