"""Gibbs sampling of sparse models across sites."""
