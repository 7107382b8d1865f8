"""The four methods, each with the same doors."""
