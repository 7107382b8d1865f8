"""Small machines: one question that all clients answer once."""
