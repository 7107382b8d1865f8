"""Data with a known truth."""
