"""Defines a sampler's kept draws of the hierarchical sparse models, and their summary by name (sparse.md, section 12)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ..arrays import Array
from . import mixing
from .released import ByDraws, Drawing, Group
from .selection import LARGE, matrix, partial_correlations

Row = dict[str, float]

# The quantities by which convergence is judged, and their names. R-hat and ESS use ranks: those of tau^2 are those of log tau.
JUDGED = {"theta": "theta", "tau_sq": "log_tau", "inclusion": "inclusion", "eta": "log_eta", "rho": "logit_rho"}
JUDGED |= {"average": "average", "by_rows": "average_by_rows", "between": "between_sd"}  # these where they are known
OWN = ("theta", "inclusion", "average")  # whose R-hats mark a coefficient
DERIVED = ("average", "by_rows", "between", "new_site")  # functions of the kept quantities of a round, where they are known
NAMES = {"by_rows": "average_by_rows", "between": "between_sd", "new_site": "new_site"}  # in summary.json
NAMED = {name: field_name for field_name, name in NAMES.items()}


@dataclass(frozen=True)
class Samples(ByDraws):
    """Holds the kept draws of c chains, t of each, on the model's standardised scale."""

    # of the P coefficients: "age", or the edges "from -> to" in the order of the flattened active (g, p) array
    names: tuple[str, ...]
    # theta, tau_sq, inclusion: (c, t, P) global coefficient, its tau^2, q = P(gamma = 1 | rest)
    theta: Array
    tau_sq: Array
    inclusion: Array
    average: Array | None  # (c, t, P) (1/M) sum_k theta_k; None where the server keeps sums alone
    # eta, rho: (c, t, E) and (c, t, g)
    eta: Array
    rho: Array
    scale: Array  # (P,) positive factor to the data's scale: theta_original = theta * scale
    sites: Mapping[str, Array] = field(default_factory=dict)  # client -> theta_k (c, t, P); empty unless the job shares them
    kind: str = "regression"  # "regression", "mrf" or "sem"
    nodes: tuple[str, ...] = ()  # names of the variables of a graph
    c0: float = 0.01  # ratio of the variances of spike and slab
    negligible: float | None = None  # where the job fixes the spike, two of its standard deviations; c0 is not used then
    # (c, t, P) sum_k n_k theta_k / sum_k n_k; None where the server does not know the sites' numbers of rows either
    by_rows: Array | None = None
    between: Array | None = None  # (c, t, P) standard deviation of the M sites' theta_k; None with sums, and for a single site
    new_site: Array | None = None  # (c, t, P) theta_k of a site that the model has not seen
    delta: float = LARGE  # size from which an average counts as large, and a site as different
    # (sites, P) whether each site's rows tell something of a coefficient, in the order of `sites`; None: of all
    told: NDArray[np.bool_] | None = None

    @property
    def pip(self) -> Array:
        """The (P,) posterior inclusion probabilities, Rao-Blackwellised: the means of q."""
        return _mean(self.inclusion)

    @property
    def arrays(self) -> dict[str, Array]:
        """All kept draws by name, as the digest and posterior.nc have them."""
        draws_of = {name: getattr(self, name) for name in ("theta", "tau_sq", "inclusion", "average", "eta", "rho")}
        known = {name: draws for name, draws in draws_of.items() if draws is not None}
        return known | {f"theta@{client}": draws for client, draws in self.sites.items()}

    def of(self, chains: Sequence[int]) -> Samples:
        """Returns the draws of these chains alone."""
        kept = list(chains)
        arrays = {name: getattr(self, name)[kept] for name in ("theta", "tau_sq", "inclusion", "eta", "rho")}
        arrays |= {name: draws[kept] for name in DERIVED if (draws := getattr(self, name)) is not None}
        return replace(self, **arrays, sites={name: draws[kept] for name, draws in self.sites.items()})

    @property
    def pip_by_chain(self) -> Array:
        """The (c, P) posterior inclusion probabilities of each chain."""
        by_chain: Array = self.inclusion.mean(axis=1)
        return by_chain

    def p_large(self, delta: float) -> Array | None:
        """Returns (P,) P(|site average| > delta), standardised; None where the average is not known."""
        return None if self.average is None else _mean(np.abs(self.average) > delta)

    @cached_property
    def mixing(self) -> dict[str, tuple[Array, Array]]:
        """R-hat and ESS of each of `arrays`, by name. Both use ranks: those of tau^2 are log tau's."""
        derived = {"by_rows": self.by_rows, "between": self.between}
        draws_of = self.arrays | {name: draws for name, draws in derived.items() if draws is not None}
        return mix(draws_of, self.told, list(self.sites))

    @property
    def rhat(self) -> Array | None:
        """The (P,) largest R-hat of each coefficient's published numbers (theta, q, the site average); None without any."""
        rhats = [self.mixing[name][0] for name in OWN if name in self.mixing]
        return np.fmax.reduce(rhats) if rhats else None

    @cached_property
    def pip_error(self) -> Array:
        """The (P,) Monte-Carlo standard errors of the PIPs."""
        return mixing.published_mean_error(self.inclusion)

    def slowest(self) -> tuple[float, float, str] | None:
        """Returns the largest R-hat, the smallest ESS, and the name of the latter, over all that is printed; None without an ESS.

        Printed are theta, log tau, q, log eta, logit rho, numbers over sites, and sites' coefficients.
        """
        names = JUDGED | {f"theta@{client}": f"theta@{client}" for client in self.sites}
        mixed = {printed: self.mixing[name] for name, printed in names.items() if name in self.mixing}
        return mixing.slowest(mixed, lambda j, n: "" if n == 1 else f"[{self._labels(n)[j]}]")

    @property
    def mean(self) -> Array:
        """The (P,) posterior means of theta, standardised."""
        return _mean(self.theta)

    def partial_correlation(self) -> tuple[Array, int]:
        """Returns (p, p) posterior means of a graph's partial correlations, and how many had to be clipped to [-1, 1]."""
        correlations, clipped = partial_correlations(matrix(self.theta, len(self.nodes)))
        return correlations.mean(axis=(0, 1)), clipped

    def parameters(self) -> dict[str, Row]:
        """Returns the `parameters` of summary.json.

        Returns
        -------
        name -> mean, sd, q05, q50, q95, and rhat, ess where ArviZ is installed; and further
            theta[age], theta_std[age] : the data's and the model's scale, the latter where they differ (so for all that follow).
                On the standardised one `pip`, with `pip_rhat` and `pip_ess` of q, and `pip_mcse`, its Monte-Carlo standard error
            average[age] : (1/M) sum_k theta_k, with `p_positive`, and `p_large` = P(|average| > delta standardised). This and the
                next two are over the sites whose rows tell something of age, with `sites`, their number, where they are not all;
                a number over no site (`between_sd`: over one) is left out
            average_by_rows[age] : sum_k n_k theta_k / sum_k n_k, with `p_positive`
            between_sd[age] : standard deviation of the M sites' theta_k
            tau[age], eta, rho : standardised scale; "eta[HER2]" where there are several
            negligible : 2 sqrt(c0 eta), below which effects count as zero, standardised scale
            theta[age]@clinic-b : a client's, if its rows tell something of it, with `p_deviates` = P(|theta_k - theta| >
                delta standardised), and, of more than two, `contrast` to the median of the others, its mean, and `p_differs` =
                P(|contrast| > delta)
        """
        with_pip = [{"pip": float(pip)} for pip in self.pip]
        judged = self.mixing.get("inclusion", ()) if self.pip_error is None else (*self.mixing["inclusion"], self.pip_error)
        for what, values in zip(("pip_rhat", "pip_ess", "pip_mcse"), judged):
            for extra, value in zip(with_pip, values.tolist()):
                extra |= {} if np.isnan(value) else {what: value}
        out = self._scaled("theta", "", with_pip)
        if self.average is not None:
            positive, large = _mean(self.average > 0), _mean(np.abs(self.average) > self.delta)
            signs = [{"p_positive": float(a), "p_large": float(b)} for a, b in zip(positive, large)]
            out |= self._over_sites("average", signs)
        if self.by_rows is not None:
            out |= self._over_sites("average_by_rows", [{"p_positive": float(p)} for p in _mean(self.by_rows > 0)])
        if self.between is not None:
            out |= self._over_sites("between_sd", [{}] * len(self.names), least=2)
        out |= _named("tau", self.names, _rows(np.sqrt(self.tau_sq), self.mixing.get("tau_sq")))
        spike = self.mixing.get("eta") if self.negligible is None else None
        of_eta, of_rho = (self.eta, self.mixing.get("eta")), (self.rho, self.mixing.get("rho"))
        for name, (draws, mixed) in (("eta", of_eta), ("rho", of_rho), ("negligible", (self._negligible(), spike))):
            labels = [""] if draws.shape[-1] == 1 else self._labels(draws.shape[-1])
            out |= _named(name, labels, _rows(draws, mixed))
        contrasts = self._contrasts() if len(self.sites) > 2 else {}  # of two, a contrast would name both
        for k, (client, draws) in enumerate(self.sites.items()):
            deviates = [{"p_deviates": float(p)} for p in _mean(np.abs(draws - self.theta) > self.delta)]
            deviates = [row | contrasts.get((k, j), {}) for j, row in enumerate(deviates)]
            rows = self._scaled("theta", f"@{client}", deviates)
            here = None if self.told is None else self.told[k]
            out |= rows if here is None else self._only(rows, f"@{client}", here)
        return out

    def _over_sites(self, name: str, extra: Sequence[Row], least: int = 1) -> dict[str, Row]:
        """Returns `_scaled` of a number over the sites that tell something of a coefficient, if they are at least `least`."""
        if self.told is None or self.told.all():
            return self._scaled(name, "", extra)
        count = self.told.sum(axis=0)
        rows = self._only(self._scaled(name, "", extra), "", count >= least)
        for j, label in enumerate(self.names):
            for scale in (name, f"{name}_std"):
                if count[j] < len(self.told) and f"{scale}[{label}]" in rows:
                    rows[f"{scale}[{label}]"]["sites"] = int(count[j])
        return rows

    def _only(self, rows: Mapping[str, Row], after: str, which: NDArray[np.bool_]) -> dict[str, Row]:
        """Returns the rows of some coefficients."""
        gone = tuple(f"[{name}]{after}" for name, shown in zip(self.names, which) if not shown)
        return {name: row for name, row in rows.items() if name[name.index("[") :] not in gone}

    def new_sites(self) -> dict[str, Row]:
        """Returns theta[age], theta_std[age] of a site that is not among these: `centre`, quantiles and `p_positive`.

        Its tails have neither a mean nor an sd: `centre` is the mean of theta, about which it lies.
        """
        if self.new_site is None:
            return {}
        scaled = self._scaled("new_site", "", [{"p_positive": float(p)} for p in _mean(self.new_site > 0)])
        theta, out = self._scaled("theta", "", [{}] * len(self.names)), dict[str, Row]()
        for label, row in scaled.items():
            name = label.replace("new_site", "theta", 1)
            known = {key: value for key, value in row.items() if key not in ("mean", "sd")}
            out[name] = {"centre": theta[name]["mean"], **known}
        return out

    def _contrasts(self) -> dict[tuple[int, int], Row]:
        """Returns (site, coefficient) -> `contrast` and `p_differs`: its value less the median of the others that tell something
        of it.

        It is the median, for one site that is far away would make each of the others differ from the mean of their rest.
        """
        of_sites, out = list(self.sites.values()), dict[tuple[int, int], Row]()
        for j in range(len(self.names)):
            here = [k for k in range(len(of_sites)) if self.told is None or self.told[k, j]]
            if len(here) < 3:
                continue
            of_coefficient = np.stack([of_sites[k][..., j] for k in here])
            order = np.argsort(of_coefficient, axis=0, kind="stable")
            ordered, rank = np.take_along_axis(of_coefficient, order, axis=0), np.argsort(order, axis=0)
            for k, values, rank_of_site in zip(here, of_coefficient, rank):
                middle = [
                    np.where(rank_of_site <= q, ordered[q + 1], ordered[q]) for q in ((len(here) - 2) // 2, (len(here) - 1) // 2)
                ]
                contrast = values - (middle[0] + middle[1]) / 2
                out[k, j] = {"contrast": float(contrast.mean()), "p_differs": float(np.mean(np.abs(contrast) > self.delta))}
        return out

    def groups(self, drawing: Drawing) -> dict[str, Group]:
        """Returns all kept draws; coordinates are the names of coefficients, clients and nodes."""
        axes, per = ("chain", "draw"), "coefficient"
        names = {per: list(self.names)}
        drawn = {"theta_std": self.theta, "theta": self.theta * self.scale, "tau": np.sqrt(self.tau_sq)}
        drawn |= {} if self.average is None else {"average_std": self.average}
        variables: dict[str, tuple[tuple[str, ...], Array]] = {name: ((*axes, per), draws) for name, draws in drawn.items()}
        derived = {f"{NAMES[name]}_std": getattr(self, name) for name in NAMES}
        variables |= {name: ((*axes, per), draws) for name, draws in derived.items() if draws is not None}
        variables |= {name: ((*axes, f"{name}_of"), draws) for name, draws in (("eta", self.eta), ("rho", self.rho))}
        several = {f"{name}_of": draws.shape[-1] for name, draws in (("eta", self.eta), ("rho", self.rho)) if draws.shape[-1] > 1}
        names |= {axis: list(self._labels(n)) for axis, n in several.items() if len(self._labels(n)) == n}
        if self.sites:
            names["client"] = list(self.sites)
            variables["theta_std_at"] = ((*axes, "client", per), np.stack(list(self.sites.values()), axis=2))
        sampled = {"chain": np.arange(self.theta.shape[0]), "draw": np.arange(self.theta.shape[1])}
        return {
            "posterior": Group(variables, {**sampled, **names}),
            "sample_stats": Group({"inclusion": ((*axes, per), self.inclusion)}, {**sampled, per: list(self.names)}),
            "constant_data": Group({"scale": (per, self.scale), "pip": (per, self.pip)}, {per: list(self.names)}),
        }

    def _scaled(self, name: str, after: str, extra: Sequence[Row]) -> dict[str, Row]:
        """Returns summaries on both scales; `extra` is added to the standardised one. R-hat and ESS use ranks, and are equal."""
        field_name = NAMED.get(name, name)
        draws = getattr(self, field_name) if field_name in DERIVED else self.arrays[field_name + after]
        standard = _rows(draws, self.mixing.get(field_name + after))
        differs = self.scale != 1
        data = [rescaled(row, factor) for row, factor in zip(standard, self.scale.tolist())]
        both = [row | more for row, more in zip(standard, extra)]
        first = [row if two else extended for row, extended, two in zip(data, both, differs)]
        second = {label: row for (label, row), two in zip(_named(f"{name}_std", self.names, both, after).items(), differs) if two}
        return _named(name, self.names, first, after) | second

    def _labels(self, n: int) -> Sequence[str]:
        """Returns the names of n quantities: one for each node, or for each coefficient."""
        return self.nodes if n == len(self.nodes) else self.names

    def _negligible(self) -> Array:
        """Returns the draws of the size below which effects count as zero."""
        if self.negligible is not None:
            return np.full((*self.eta.shape[:2], 1), self.negligible)
        return 2 * np.sqrt(self.c0 * self.eta)


def rescaled(row: Row, factor: float) -> Row:
    """Returns a row's numbers in another unit; R-hat and ESS have none."""
    return {**row, **{key: value * factor for key, value in row.items() if key not in ("rhat", "ess")}}


def _named(name: str, labels: Sequence[str], rows: Sequence[Row], after: str = "") -> dict[str, Row]:
    """Returns rows by the names of summary.json."""
    named = (f"{name}[{label}]" if label else name for label in labels)
    return {label + after: row for label, row in zip(named, rows)}


def _mean(draws: NDArray[np.bool_] | Array) -> Array:
    """Averages over chains and draws."""
    mean: Array = draws.mean(axis=(0, 1), dtype=np.float64)
    return mean


def mix(draws_of: Mapping[str, Array], reached: NDArray[np.bool_] | None, sites: Sequence[str]) -> dict[str, mixing.Both]:
    """Computes R-hat and ESS of draws by name; NaN where too few sites tell something of a coefficient (see `Samples.told`)."""
    mixed = {name: mixing.published_rhat_ess(draws) for name, draws in draws_of.items()}
    if reached is None:
        return mixed
    count = reached.sum(axis=0)
    unknown = {"average": count < 1, "by_rows": count < 1, "between": count < 2}
    unknown |= {f"theta@{client}": ~tells for client, tells in zip(sites, reached)}
    for name in unknown.keys() & mixed.keys():
        rhat, ess = (np.where(unknown[name], np.nan, values) for values in mixed[name])
        mixed[name] = rhat, ess
    return mixed


def _rows(draws: Array, mixed: tuple[Array, Array] | None) -> list[Row]:
    """Summarises each of the P columns of (c, t, P). `mixed`: their R-hat and ESS."""
    flat = draws.reshape(-1, draws.shape[-1])
    sd = flat.std(axis=0, ddof=1) if len(flat) > 1 else np.full(flat.shape[1], np.nan)
    summaries = {"mean": flat.mean(axis=0), "sd": sd}
    summaries |= dict(zip(("q05", "q50", "q95"), np.quantile(flat, (0.05, 0.5, 0.95), axis=0)))
    summaries |= dict(zip(("rhat", "ess"), mixed or ()))
    columns = [values.tolist() for values in summaries.values()]
    return [dict(zip(summaries, values)) for values in zip(*columns)]
