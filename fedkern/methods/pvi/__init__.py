"""Partitioned variational inference."""
