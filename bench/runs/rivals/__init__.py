"""What people would pick instead of this engine, each product in a process of its own."""
