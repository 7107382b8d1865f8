"""Builds and trains priors of maps: `fedkern sigma build` and `fedkern sigma train`."""
