"""One package for each API that is spoken: its routes and its wire format, no more."""
