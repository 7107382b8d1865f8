"""Fits vertically split data by variational inference."""
