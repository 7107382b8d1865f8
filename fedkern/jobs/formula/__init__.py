"""Handles `model.formula`: reads it from the job file, lays it over the other keys, and has all parties agree on it."""
