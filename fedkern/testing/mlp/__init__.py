"""Makes cases of the networks and of the autoencoder."""
