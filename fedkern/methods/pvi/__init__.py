"""Runs jobs of partitioned variational inference."""
