"""Real harnesses, a network that ends at the loopback, and the model server at its end."""
