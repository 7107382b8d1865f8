"""Jobs with method = "vertical": every client has columns of its own, of the same rows."""
