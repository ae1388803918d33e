"""New runs and text from trained models: pruned, scaled, distilled, searched by grid. It has no
loop of its own."""
