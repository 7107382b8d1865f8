"""Cases of the networks and of the autoencoder."""
