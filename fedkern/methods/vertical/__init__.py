"""Vertically split data."""
