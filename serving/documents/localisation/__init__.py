"""Messages of programs. Only those without a translation are units, each at its place in the
file."""
