"""Partitioned variational inference, its private forms, and the baselines it is compared with."""
