"""Simulates data with a known truth."""
