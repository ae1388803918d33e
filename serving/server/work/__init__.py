"""What a request has to pass: choice of the model, limits, the queue and the count. It knows no
dialect."""
