"""Spatial priors on a device."""
