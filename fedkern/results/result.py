"""What a finished job gives back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .released import Released
from .verdict import Word


@dataclass(frozen=True)
class Result:
    """A finished job.

    Attributes
    ----------
    summary : what `summary.json` holds; see the properties
    posterior : means, deviations and draws; of a sampler its kept draws (or streaming summaries)
    folder : where the run's files are; None if nothing was written
    seed, chains, n_draws : of `to_arviz`
    """

    summary: Mapping[str, Any]
    posterior: Released
    folder: Path | None = None
    seed: int = 0
    chains: int = 4
    n_draws: int = 1000

    @property
    def parameters(self) -> dict[str, dict[str, float]]:
        """Name -> mean, sd, q05, q95; of a sampler also rhat, ess, pip, as far as they apply.

        Where chains of a sem disagree, all but rhat and ess are "nan"; `summary["by_mode"]` has those of each mode.
        """
        return dict(self.summary["parameters"])

    @property
    def metrics(self) -> dict[str, float]:
        """Of the released posterior on the test rows; empty without a test file."""
        return dict(self.summary["metrics"])

    @property
    def privacy(self) -> dict[str, dict[str, Any]]:
        """Client -> its certificate; empty where nothing is claimed."""
        return dict(self.summary["privacy"])

    @property
    def digest(self) -> str:
        """Of the posterior arrays: equal for equal bits, whatever the ranks, threads and transport."""
        return str(self.summary["digest"])

    @property
    def converged(self) -> Word:
        """True, False, "settled" (a fit that moves no more) or "not judged"; `summary["verdict"]` says why."""
        word: Word = self.summary["converged"]
        return word

    @property
    def stop(self) -> str:
        """Why the job ended: "rounds", "converged", "budget", "updates" or "lost"."""
        return str(self.summary["stop"])

    def to_arviz(self) -> Any:
        """Posterior draws as ArviZ's InferenceData (0.x) or DataTree (1.x); needs `pip install fedkern[results]`."""
        from .inference_data import inference_data

        return inference_data(self.posterior, seed=self.seed, chains=self.chains, draws=self.n_draws)
