"""Differential privacy: mechanisms and the budget that they spend, unpredictable noise, plans, certificates.

No file is opened here.
"""
