"""Training of spatial priors, and their central fits; no protocol."""
