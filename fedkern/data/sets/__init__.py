"""Reads published and built-in data sets."""
