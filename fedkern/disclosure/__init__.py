"""Disclosure control of open jobs: what is asked of a client's rows, and the one look at these before anything of them leaves.

No file is opened here, and no message moved.
"""
