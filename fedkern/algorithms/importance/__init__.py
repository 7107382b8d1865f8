"""Computes the exact posterior of the unknowns that clients share: the mode by Newton steps, then weighted draws around it."""
