"""Trains spatial priors, and measures their central fits; it has no protocol."""
