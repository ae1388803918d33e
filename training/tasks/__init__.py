"""What each kind of model is trained on: its data, its loss and its validation. The loop, which
asks them, is not theirs."""
