"""Holds small machines: one question that all clients answer once."""
