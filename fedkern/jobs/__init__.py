"""Runs jobs: from a job file to a run folder."""

import logging

logging.getLogger("fedkern").addHandler(logging.NullHandler())  # nothing is logged unless somebody asks
