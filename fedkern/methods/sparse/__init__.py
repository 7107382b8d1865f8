"""Runs jobs of sparse models across sites."""
