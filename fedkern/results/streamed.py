"""What a sampler published of too many coefficients to keep their draws: streaming summaries (sparse.md, section 8)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from .released import Drawing, Group
from .samples import Array, Row
from .streaming import Stream

JUDGED = ("theta", "log_tau", "inclusion")  # what convergence is judged on: not by ranks, so that tau needs its logarithm
LISTED = 2000  # coefficients in `parameters`: those with the largest PIPs


@dataclass(frozen=True)
class Streamed:
    """As `Samples`, with a `Stream` for each quantity instead of its draws."""

    names: tuple[str, ...]
    streams: Mapping[str, Stream]
    scale: Array
    kind: str = "mrf"
    nodes: tuple[str, ...] = ()
    c0: float = 0.01
    negligible: float | None = None

    @property
    def pip(self) -> Array:
        """(P,) posterior inclusion probabilities."""
        return self.streams["inclusion"].mean

    @property
    def mean(self) -> Array:
        """(P,) posterior means of theta, standardised."""
        return self.streams["theta"].mean

    @property
    def arrays(self) -> dict[str, Array]:
        """Means and deviations by name, and the thinned draws of theta: what the digest is of."""
        out = {"theta": self.streams["theta"].draws}
        for name, stream in self.streams.items():
            out |= {f"{name}.mean": stream.mean, f"{name}.sd": stream.sd}
        return out

    def of(self, chains: Sequence[int]) -> Streamed:
        """The summaries of these chains alone."""
        return replace(self, streams={name: stream.of(chains) for name, stream in self.streams.items()})

    def p_large(self, delta: float) -> Array | None:
        """(P,) P(|site average| > delta), as far as the run counted it."""
        return self.streams["large"].mean if "large" in self.streams else None

    def slowest(self) -> tuple[float, float, str] | None:
        """Largest R-hat, smallest ESS, and whose it is, over theta, log tau and q."""
        judged = [(name, self.streams[name]) for name in JUDGED if name in self.streams]
        ess = np.stack([stream.ess for _, stream in judged])
        if np.isnan(ess).all():
            return None
        i, j = np.unravel_index(int(np.nanargmin(ess)), ess.shape)
        rhat = max(float(np.nanmax(stream.rhat)) for _, stream in judged)
        return rhat, float(ess[i, j]), f"{judged[i][0]}[{self.names[j]}]"

    def partial_correlation(self) -> tuple[Array, None]:
        """(p, p) posterior means of the partial correlations; None: streams do not count what was clipped."""
        p = len(self.nodes)
        upper = np.zeros((p, p))
        upper[np.triu_indices(p, 1)] = self.streams["partial"].mean
        return upper + upper.T, None

    def groups(self, drawing: Drawing) -> dict[str, Group]:
        """The thinned draws of theta, and what was counted of it and of the inclusion."""
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
        """Those of the coefficients with the largest PIPs: theta_std with pip, rhat and ess; theta on the data's scale."""
        chosen = np.sort(np.argsort(-self.pip, kind="stable")[:LISTED])
        theta, pip = self.streams["theta"], self.pip
        columns = {"mean": theta.mean, "sd": theta.sd, "rhat": theta.rhat, "ess": theta.ess}
        columns |= dict(zip(("q05", "q50", "q95"), np.quantile(theta.draws, (0.05, 0.5, 0.95), axis=(0, 1))))
        out: dict[str, Row] = {}
        for j in chosen:
            row = {name: float(values[j]) for name, values in columns.items()}
            on_data = {k: v if k in ("rhat", "ess") else v * float(self.scale[j]) for k, v in row.items()}
            if self.scale[j] == 1:
                out[f"theta[{self.names[j]}]"] = row | {"pip": float(pip[j])}
            else:
                out[f"theta[{self.names[j]}]"] = on_data
                out[f"theta_std[{self.names[j]}]"] = row | {"pip": float(pip[j])}
        for name in ("eta", "rho"):
            stream = self.streams[name]
            labels = (
                [""] if stream.size == 1 else [f"[{node}]" for node in self.nodes] if stream.size == len(self.nodes) else None
            )
            for j, label in enumerate(labels or ()):
                out[name + label] = {"mean": float(stream.mean[j]), "sd": float(stream.sd[j])}
        return out
