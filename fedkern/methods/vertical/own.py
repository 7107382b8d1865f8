"""Writes the file that only the client may see: the posterior of its coefficients, on the model's scale and on its data's."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular

from ...algorithms import soul
from ...algorithms.split import machine as vertical
from ...arrays import Array
from ...jobs import convergence
from ...jobs.run import Run
from ...kernels import rng
from ...models.split.predictors import Linear, Multilevel
from ...results import guard
from ...results.gaussian import summarised
from ...results.plain import Record
from ...results.verdict import against, not_judged
from . import levels, normal, parts
from .keys import Config
from .model import PRODUCT, VerticalModel
from .normal import Lines
from .rows import Columns
from .widths import own_words

DRAWS = 4000


@dataclass(frozen=True)
class Own:
    """Holds a client's machine at the end, its columns, and its knowledge of its widths."""

    client: vertical.Client | soul.Client
    columns: Columns
    ratio: float | None = None
    lines: Lines | None = None

    @property
    def widened(self) -> bool:
        """Whether the width that q lacks along this client's part is added: for a linear predictor whose q has all
        covariances."""
        client = self.client
        if self.ratio is None or isinstance(client, soul.Client) or not isinstance(client.site.predictor, Linear):
            return False
        return not client.site.point and (client.site.block.full or client.site.block.size == 1)

    @property
    def scale(self) -> Array:
        """The root of q(theta) in a variational fit: (d,) standard deviations or (d, d); widened (d, d + 1)."""
        assert isinstance(self.client, vertical.Client)
        site = self.client.site
        part = self.client.released[site.parts["theta"]]
        root, mean = site.block.scale(part), part[: site.block.size]
        if not self.widened or self.ratio is None:
            return root
        L = root if site.block.full else np.diag(root)
        along = mean / max(float(np.linalg.norm(solve_triangular(L, mean, lower=True))), 1e-300)
        return np.column_stack([L, math.sqrt(self.ratio**-2 - 1) * along])

    @property
    def moments(self) -> tuple[Array, Array, Array]:
        """The moments of a linear predictor's coefficients, as published apart from the model's factor.

        They are means (d,), standard deviations of q (d,), and `scale`, which for levels is (d, e).
        """
        assert isinstance(self.client, vertical.Client)
        site, contrasts, scale = self.client.site, self.columns.contrasts, self.scale
        part = self.client.released[site.parts["theta"]]
        mean = part[: site.block.size]
        if contrasts is None:
            return mean, site.block.sd(part), scale
        q = site.block.scale(part)
        q, scale = (contrasts.published(x if x.ndim == 2 else np.diag(x)) for x in (q, scale))
        return contrasts.published(mean), np.linalg.norm(q, axis=1), scale


def write(run: Run[Config], model: VerticalModel, record: Own, verdict: Record) -> None:
    """Writes posterior.json to the client's folder, headed by the server's verdict; `own` in it says whether the client's fit
    settled."""
    client, columns = record.client, record.columns
    common = {"rows": model.n_rows, "rounds": client.round, "encoding": columns.encoding.to_dict()}
    if isinstance(client, soul.Client):
        content = _conditional(client, columns)
    else:
        content = {**_posterior(model, record), **_contrasts(model, record)}
        if not model.network:
            content |= _judged(model, record, client)
    if model.open:
        content = {**content, "part": parts.kept(model, client, columns)}
    run.hooks.write_own(client.index, "posterior.json", {**verdict, **common, **content})


@guard.figure("whether a client's own unknowns are right", {"own": not_judged("it could not be computed").content})
def _judged(model: VerticalModel, record: Own, client: vertical.Client) -> Record:
    """Returns whether a client's own unknowns have settled, and what is to be known of them."""
    columns = record.columns
    judged = convergence.own(client, _unknowns(model, client, columns))
    intervals = {} if record.lines is None else _intervals(model, record, record.lines)
    doubts = [check.found for check in normal.checks(record.lines, intervals)]
    if narrow := own_words(record.ratio, widened=record.widened):
        doubts.append(narrow)
    if columns.tied:
        doubts.append(levels.TIED)
    judged = against(doubts, judged)
    product = [PRODUCT] if len(model.names) > 1 else []
    content: dict[str, Any] = {"lines": intervals} if intervals else {}
    content |= {"own": judged.content, "note": "; ".join([*doubts, *product, model.about_rho()])}
    if model.watched:
        content["rho"] = model.rho
    return content


@guard.figure("widths along lines", None)
def compute_lines(model: VerticalModel, client: vertical.Client, columns: Columns, slopes: Array) -> Lines | None:
    """Computes how wide the posterior of each coefficient of a linear predictor is; None for other predictors."""
    site, f = client.site, model.factor
    if site.point or not isinstance(site.predictor, Linear):
        return None
    part = client.released[site.parts["theta"]]
    root, predictor = site.block.scale(part), site.predictor
    root = root if site.block.full else np.diag(root)
    along = root if columns.contrasts is None else columns.contrasts.published(root)
    moments = f * part[: site.block.size], f * root
    linear = normal.Own(predictor.H, *moments, predictor.prior_mean, predictor.prior_sd, f * along)
    return normal.measure_lines(linear, [f"theta[{name}]" for name in columns.encoding.names], slopes)


def _intervals(model: VerticalModel, record: Own, along: Lines) -> dict[str, dict[str, float]]:
    """Returns intervals on the data's scale, of coefficients whose posterior is not as wide as q."""
    assert isinstance(record.client, vertical.Client)
    factors = model.factor * _factors(record.columns)
    mean, sd, _ = record.moments
    moments = zip((factors * mean).tolist(), (factors * sd).tolist())
    return along.content(dict(zip(along.names, moments)))


def _unknowns(model: VerticalModel, client: vertical.Client, columns: Columns) -> list[str]:
    """Returns the names of theta, as the optimiser has it."""
    names, predictor = columns.encoding.names, client.site.predictor
    names = names if columns.contrasts is None else tuple(levels.name_contrasts(columns.encoding))
    if isinstance(predictor, Multilevel):
        heads = [f"mu[{name}]" for name in names] + [f"sigma[{name}]" for name in names]
        return heads + [f"theta_std[{name},{level}]" for level in columns.levels for name in names]
    if model.kind == "bayes-network":
        return [f"w[{q + 1}]" for q in range(client.site.block.size)]
    return [f"theta_std[{name}]" for name in names]


def _conditional(client: soul.Client, columns: Columns) -> Record:
    """Returns the summary of Langevin draws."""
    theta = soul.conditional(client)
    mean, covariance, contrasts = theta.mean, theta.covariance, columns.contrasts
    if contrasts is not None:
        mean, covariance = contrasts.published(mean), contrasts.published(contrasts.published(covariance).T)
    return {"label": theta.label, "parameters": slopes(columns, mean, np.sqrt(np.diag(covariance)))}


def _posterior(model: VerticalModel, record: Own) -> Record:
    """Returns name -> mean, sd and 5/95 %; for networks also weights; where sds are widened, those of q too."""
    client, columns = record.client, record.columns
    assert isinstance(client, vertical.Client)
    site, parameters = client.site, client.released
    part = parameters[site.parts["theta"]]
    if model.networks:
        labels = tuple(f"w[{q + 1}]" for q in range(model.features))
        spread = np.zeros(len(part)) if site.point else site.block.sd(part)
        network = {"sizes": list(site.predictor.sizes), "weights": parameters[site.parts["phi"]].tolist()}  # type: ignore[attr-defined]
        f = model.factor
        return {"parameters": summarised(labels, f * part[: len(labels)], f * spread), "network": network}
    if isinstance(site.predictor, Multilevel):
        return {"parameters": _multilevel(model, client, columns)}
    f = model.factor
    mean, sd, scale = record.moments
    if not record.widened:
        return {"parameters": slopes(columns, f * mean, f * sd)}
    of_q = {name: row["sd"] for name, row in slopes(columns, f * mean, f * sd).items()}
    return {"parameters": slopes(columns, f * mean, f * np.linalg.norm(scale, axis=1)), "sd_of_q": of_q}


@guard.figure("contrasts", {})
def _contrasts(model: VerticalModel, record: Own) -> Record:
    """Returns levels of categorical columns against their reference levels, jointly with all others, for a linear predictor."""
    client, columns = record.client, record.columns
    assert isinstance(client, vertical.Client)
    site, names = client.site, columns.encoding.names
    if model.networks or isinstance(site.predictor, Multilevel):
        return {}
    references = model.references
    rows = dict[str, dict[str, float]]()
    part, _, scale = record.moments
    part, scale = model.factor * part, model.factor * scale
    for column in columns.encoding.columns:
        base = references.get(column.name) or (column.levels or ("",))[0]
        for level in column.levels or ():
            if level != base:
                j, k = (names.index(f"{column.name}={name}") for name in (level, base))
                mean = float(part[j] - part[k])
                sd = np.linalg.norm(scale[j] - scale[k]) if scale.ndim == 2 else np.hypot(scale[j], scale[k])
                sd = float(sd)
                rows |= summarised((f"{column.name}[{level} vs {base}]",), np.array([mean]), np.array([sd]))
    return {"contrasts": rows} if rows else {}


def slopes(columns: Columns, mean: Array, sd: Array) -> dict[str, dict[str, float]]:
    """Returns a linear predictor's coefficients on the data's scale, and on the standardised one where that differs."""
    factors, names = _factors(columns), columns.encoding.names
    on_data = summarised(tuple(f"theta[{name}]" for name in names), mean * factors, sd * factors)
    standard = summarised(tuple(f"theta_std[{name}]" for name in names), mean, sd)
    return on_data | {name: row for (name, row), differs in zip(standard.items(), factors != 1) if differs}


def _factors(columns: Columns) -> Array:
    """Returns the factors that turn standardised slopes into ones on the data's scale."""
    factors: list[float] = []
    for column in columns.encoding.columns:
        factors += [1 / column.constants[1]] if column.levels is None else [1.0] * len(column.levels)
    return np.array(factors)


def _multilevel(model: VerticalModel, client: vertical.Client, columns: Columns) -> dict[str, dict[str, float]]:
    """Returns mu, sigma and the slopes of each level, by draws, on the data's scale."""
    site, factors = client.site, model.factor * _factors(columns)
    predictor, contrasts = site.predictor, columns.contrasts
    assert isinstance(predictor, Multilevel)
    d = predictor.n_theta
    part = client.released[site.parts["theta"]]
    key = rng.key(model.seed, "posterior", 1)  # predictions are drawn from chain 0
    normals = rng.normal(DRAWS * d, key=key, client=client.index).reshape(DRAWS, d)
    theta = np.array([site.block.sample(part, e) for e in normals])
    slopes = np.array([predictor.slopes(t) for t in theta])
    p, names = slopes.shape[2], columns.encoding.names
    mu, sigma = theta[:, :p], np.exp(theta[:, p : 2 * p])
    if contrasts is not None:  # slopes of contrasts are independent given their sigma
        mu, slopes = contrasts.published(mu.T).T, slopes @ contrasts.rows.T
        sigma = np.sqrt(sigma**2 @ contrasts.rows.T**2)
    slopes = slopes * factors
    draws: dict[str, Array] = {}
    for k, name in enumerate(names):
        draws[f"mu[{name}]"] = mu[:, k] * factors[k]
        draws[f"sigma[{name}]"] = sigma[:, k] * factors[k]
        draws |= {f"theta[{name},{level}]": slopes[:, i, k] for i, level in enumerate(columns.levels)}
    quantiles = {name: np.quantile(x, (0.05, 0.95)) for name, x in draws.items()}
    return {
        name: {"mean": float(x.mean()), "sd": float(x.std()), "q05": float(quantiles[name][0]), "q95": float(quantiles[name][1])}
        for name, x in draws.items()
    }
