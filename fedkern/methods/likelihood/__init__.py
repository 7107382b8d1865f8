"""Regressions and mixed models of open jobs, with their exact posterior."""
