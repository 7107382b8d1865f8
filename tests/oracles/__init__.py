"""Computations that share nothing with the package: what tests hold its numbers against."""
