"""The benches, a module each: what is measured, in which order, and its table. Rooms are tasks."""
