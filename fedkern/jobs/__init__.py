"""The job engine: from a job file to a run folder."""
