"""Describes the columns of all clients: rows, means, quantiles, levels, cross tables, correlations and survival."""
