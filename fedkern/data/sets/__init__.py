"""Published and built-in data sets."""
