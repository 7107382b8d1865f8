"""Differential privacy: mechanisms and what they spend, unpredictable noise, and budgets that belong to the data's holder."""
