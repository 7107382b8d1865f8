"""Differential privacy: mechanisms and what they spend, unpredictable noise, plans, certificates. No file is opened here."""
