"""Holds a data holder's permissions and its account of spent privacy, in the holder's files.

Policies and budgets outlive every job.
"""
