"""What can go wrong with a job, and the exit code of each."""

from __future__ import annotations


class FedkernError(Exception):
    """Base of all. A text names the thing, what was wanted, what came, and the remedy."""

    exit_code = 1


class JobError(FedkernError):
    """A bad job, bad data, or a machine that cannot run it."""

    exit_code = 2


class LostPeer(FedkernError):
    """Stopped by a signal or a lost peer; there is a checkpoint."""

    exit_code = 3


class BudgetSpent(FedkernError):
    """A privacy budget ended the job before `min_updates`."""

    exit_code = 5


class NumericalError(FedkernError):
    """A computation left the finite numbers; the text names client, step and row or coordinate."""
