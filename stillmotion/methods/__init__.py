"""Methods: a network, a split, an inner loss and an objective, composed (`method.Method`)."""
