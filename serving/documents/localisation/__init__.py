"""Messages of programs: only what is not translated yet, each at its place in the file."""
