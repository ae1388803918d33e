"""The systems that are measured, and the processes in which they run. They know no table."""
