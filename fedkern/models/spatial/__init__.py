"""Models maps and curves: their priors, true and trained, and the models around them."""
