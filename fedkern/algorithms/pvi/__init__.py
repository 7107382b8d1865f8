"""Fits by partitioned variational inference and its private forms, and by the baselines that it is compared with."""
