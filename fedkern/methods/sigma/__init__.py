"""Priors that do not factorise over clients."""
