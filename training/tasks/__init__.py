"""The training tasks, one for each kind of model: its data, its loss and its validation. The
training loop is elsewhere and calls them."""
