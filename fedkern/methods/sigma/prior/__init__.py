"""Training of such priors: `fedkern sigma train`."""
