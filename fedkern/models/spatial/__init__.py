"""Priors of maps and curves, true and trained, and the models around them."""
