"""Defines a sampler's result with too many coefficients to keep their draws: streaming summaries (sparse.md, section 8)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ..arrays import Array
from . import mixing
from .mixing import Stream
from .released import ByDraws, Drawing, Group
from .samples import OWN, Row, rescaled

JUDGED = ("theta", "log_tau", "inclusion", "log_eta", "logit_rho", "average")  # moments need logarithms
ALONE = ("log_eta", "logit_rho")  # for that alone: eta and rho are published
LISTED = 2000  # coefficients in `parameters`: those with the largest PIPs


@dataclass(frozen=True)
class Streamed(ByDraws):
    """Holds the same as `Samples`, with a `Stream` for each quantity instead of its draws."""

    names: tuple[str, ...]
    streams: Mapping[str, Stream]
    scale: Array
    kind: str = "mrf"
    nodes: tuple[str, ...] = ()
    c0: float = 0.01
    negligible: float | None = None

    @property
    def pip(self) -> Array:
        """The (P,) posterior inclusion probabilities."""
        return self.streams["inclusion"].mean

    @property
    def pip_by_chain(self) -> Array:
        """The (c, P) posterior inclusion probabilities of each chain."""
        return self.streams["inclusion"].centre

    @property
    def mean(self) -> Array:
        """The (P,) posterior means of theta, standardised."""
        return self.streams["theta"].mean

    @property
    def arrays(self) -> dict[str, Array]:
        """Means and deviations by name, and the thinned draws of theta: the arrays of the digest."""
        out = {"theta": self.streams["theta"].draws}
        for name, stream in ((name, stream) for name, stream in self.streams.items() if name not in ALONE):
            out |= {f"{name}.mean": stream.mean, f"{name}.sd": stream.sd}
        return out

    def of(self, chains: Sequence[int]) -> Streamed:
        """Returns the summaries of these chains alone."""
        return replace(self, streams={name: stream.of(chains) for name, stream in self.streams.items()})

    def p_large(self, delta: float) -> Array | None:
        """Returns (P,) P(|site average| > delta), as far as the run counted it."""
        return self.streams["large"].mean if "large" in self.streams else None

    @cached_property
    def mixing(self) -> dict[str, tuple[Array, Array]]:
        """R-hat and ESS of all judged or shown quantities, by name."""
        return {name: stream.rhat_ess() for name, stream in self.streams.items() if name in JUDGED}

    @property
    def rhat(self) -> Array:
        """The (P,) largest R-hat of each coefficient's published numbers: theta, q and the site average."""
        largest: Array = np.fmax.reduce([self.mixing[name][0] for name in OWN if name in self.mixing])
        return largest

    @cached_property
    def pip_error(self) -> Array:
        """The (P,) Monte-Carlo standard errors of the PIPs."""
        return self.streams["inclusion"].mean_error

    def slowest(self) -> tuple[float, float, str] | None:
        """Returns the largest R-hat, the smallest ESS, and the latter's name, over theta, log tau, q, log eta, logit rho,
        averages."""
        return mixing.slowest({name: self.mixing[name] for name in JUDGED if name in self.mixing}, self._label)

    def _label(self, j: int, size: int) -> str:
        """Returns the label of one of `size` quantities: a coefficient, a node, or nothing for a single one."""
        names = self.nodes if size == len(self.nodes) else self.names
        return "" if size == 1 else f"[{names[j]}]"

    def partial_correlation(self) -> tuple[Array, None]:
        """Returns (p, p) posterior means of the partial correlations, and None: streams do not count clipped pairs."""
        p = len(self.nodes)
        upper = np.zeros((p, p))
        upper[np.triu_indices(p, 1)] = self.streams["partial"].mean
        return upper + upper.T, None

    def groups(self, drawing: Drawing) -> dict[str, Group]:
        """Returns the thinned draws of theta, and the moments of it and of the inclusion."""
        axes, per, names = ("chain", "draw"), "coefficient", list(self.names)
        theta = self.streams["theta"].draws
        variables = {"theta": ((*axes, per), theta * self.scale), "theta_std": ((*axes, per), theta)}
        constants = {"scale": (per, self.scale), "pip": (per, self.pip)}
        for name in ("theta", "inclusion"):
            constants |= {f"{name}_mean": (per, self.streams[name].mean), f"{name}_sd": (per, self.streams[name].sd)}
        sampled = {"chain": np.arange(theta.shape[0]), "draw": np.arange(theta.shape[1])}
        return {
            "posterior": Group(variables, {**sampled, per: names}),
            "sample_stats": Group({}, {**sampled, per: names}),
            "constant_data": Group(constants, {per: names}),
        }

    def parameters(self) -> dict[str, Row]:
        """Returns the coefficients with the largest PIPs, on both scales, with R-hat and ESS of theta, and of the PIP."""
        chosen = np.sort(np.argsort(-self.pip, kind="stable")[:LISTED])
        theta, pip = self.streams["theta"], self.pip
        columns = {"mean": theta.mean, "sd": theta.sd, **dict(zip(("rhat", "ess"), self.mixing["theta"]))}
        of_pip = {"pip": pip, **dict(zip(("pip_rhat", "pip_ess"), self.mixing["inclusion"])), "pip_mcse": self.pip_error}
        columns |= dict(zip(("q05", "q50", "q95"), np.quantile(theta.draws, (0.05, 0.5, 0.95), axis=(0, 1))))
        out: dict[str, Row] = {}
        for j in chosen:
            row = {name: float(values[j]) for name, values in columns.items()}
            row_of_pip = {name: float(values[j]) for name, values in of_pip.items() if not np.isnan(values[j])}
            on_data = rescaled(row, float(self.scale[j]))
            if self.scale[j] == 1:
                out[f"theta[{self.names[j]}]"] = row | row_of_pip
            else:
                out[f"theta[{self.names[j]}]"] = on_data
                out[f"theta_std[{self.names[j]}]"] = row | row_of_pip
        for name, judged in (("eta", "log_eta"), ("rho", "logit_rho")):
            stream = self.streams[name]
            columns = {"mean": stream.mean, "sd": stream.sd, **dict(zip(("rhat", "ess"), self.mixing[judged]))}
            size = stream.size if stream.size in (1, len(self.nodes)) else 0
            for j in range(size):
                out[name + self._label(j, stream.size)] = {key: float(values[j]) for key, values in columns.items()}
        return out
