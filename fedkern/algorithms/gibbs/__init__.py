"""Samples sparse models across sites by Gibbs sampling."""
