"""Sparse models across sites."""
