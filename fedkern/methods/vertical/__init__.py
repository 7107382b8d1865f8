"""Runs jobs on vertically split data."""
