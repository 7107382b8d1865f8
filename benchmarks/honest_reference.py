"""Two references of the data sets of `honest.py` on their pooled rows: R's estimates, and the posterior with a job's own prior.

R fits each with the function that its users take (`lm`, `glm`, `glm.nb`, `polr`, `multinom`, `coxph`, `survreg`, `lmer`, `glmer`,
`clmm`), a Cox model stratified by client, groups within clients. Its estimates have no prior, and are modes. So a job is held
against the posterior, and the posterior against R: a column that is coded otherwise would show. The posterior is that of
docs/spec/likelihood.md, sections 3, 4, 9 and 10, written in JAX (not a dependency) without fedkern, by weighted draws.

Rows may have widened a job's default priors, and rare levels joined: the reference of such a result has the same ones.

Columns are those that formulaic makes of the complete rows; without a formula there is one for each label of a column of texts.
"""

from __future__ import annotations

import csv
import io
import json
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import formulaic
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pandas as pd
from honest import DataSet, Fitted, plain
from jax.scipy.special import gammaln
from numpy.typing import NDArray
from numpyro.diagnostics import effective_sample_size
from scipy.optimize import minimize
from scipy.stats import multivariate_t

from fedkern.arrays import Vector

jax.config.update("jax_enable_x64", True)
DRAWS, AT_ONCE = 2000, 50
ADAPTING, TURNS = 3, 8  # rounds of draws: whose weights move the proposal, and at most
ENOUGH, LEAST, CHAINS = 3000, 400, 4  # effective draws; below the least NUTS draws them

FITS = r"""
suppressMessages({library(MASS); library(survival); library(lme4); library(nnet)})
args <- commandArgs(TRUE)
d <- read.csv(args[1], check.names = FALSE, stringsAsFactors = TRUE, na.strings = "")
family <- args[2]
f <- as.formula(args[3])
levels <- if (nchar(args[4])) strsplit(args[4], "\t")[[1]] else NULL
y <- all.vars(f)[1]
random <- any(grepl("|", deparse(f), fixed = TRUE))
if (family %in% c("ordinal", "multinomial")) {
  d[[y]] <- if (is.null(levels)) factor(d[[y]]) else factor(d[[y]], levels = levels)
}
tell <- function(names, values, errors) cat(sprintf("%s\t%.17g\t%.17g\n", names, values, errors), sep = "")
coefficients <- function(fit, beta = fixef(fit)) tell(names(beta), beta, sqrt(diag(as.matrix(vcov(fit)))))
tell_plain <- function(fit) { b <- coef(fit); V <- vcov(fit); b <- b[!is.na(b)]; tell(names(b), b, sqrt(diag(V))[names(b)]) }
if (family == "gaussian" && random) { fit <- lmer(f, d); coefficients(fit) }
if (family == "gaussian" && !random) { fit <- lm(f, d); tell_plain(fit); tell("sigma", sigma(fit), NA) }
if (family %in% c("bernoulli", "binomial")) if (random) coefficients(glmer(f, d, binomial)) else tell_plain(glm(f, binomial, d))
if (family == "poisson") if (random) coefficients(glmer(f, d, poisson)) else tell_plain(glm(f, poisson, d))
if (family == "negative-binomial") {
  if (random) { fit <- glmmTMB::glmmTMB(f, d, family = glmmTMB::nbinom2); b <- fixef(fit)$cond
    tell(names(b), b, sqrt(diag(vcov(fit)$cond))); tell("dispersion", 1 / sigma(fit), NA)
  } else { fit <- glm.nb(f, d, maxit = 100); tell_plain(fit); tell("dispersion", 1 / fit$theta, NA) }
}
if (family == "gamma") { fit <- glm(f, Gamma("log"), d); tell_plain(fit); tell("shape", MASS::gamma.shape(fit)$alpha, NA) }
if (family == "ordinal") {
  if (random) { fit <- ordinal::clmm(f, data = d, Hess = TRUE); s <- summary(fit)$coefficients; tell(rownames(s), s[, 1], s[, 2])
  } else { fit <- polr(f, d, Hess = TRUE); s <- coef(summary(fit)); tell(rownames(s), s[, 1], s[, 2]) }
}
if (family == "multinomial") {
  fit <- multinom(f, d, trace = FALSE, maxit = 2000); b <- t(coef(fit))
  if (is.null(dim(coef(fit)))) b <- matrix(coef(fit))
  tell(paste0(rep(levels(d[[y]])[-1], each = nrow(b)), ":", rownames(b)), c(b), sqrt(diag(vcov(fit))))
}
if (family == "cox") tell_plain(coxph(update(f, . ~ . + strata(client)), d))
if (family == "weibull") {
  fit <- survreg(f, d); b <- coef(fit)
  tell(names(b), -b / fit$scale, sqrt(diag(vcov(fit)))[names(b)] / fit$scale); tell("shape", 1 / fit$scale, NA)
}
used <- c("stats", "MASS", "survival", "lme4", "nnet", "ordinal", "glmmTMB")
versions <- sapply(used, function(p) paste(p, packageVersion(p)))
cat("versions\t", R.version.string, ", ", paste(versions, collapse = ", "), "\n", sep = "")
"""


def estimates(one: DataSet, family: str, d: pd.DataFrame) -> tuple[dict[str, list[float]], str]:
    """Returns R's estimates and their standard errors, and the versions of R and its packages."""
    formula = one.formula
    if one.group:  # it belongs to its client
        d = d.assign(group_=d["client"] + " " + d[one.group].astype(str))
        formula = formula.replace(f"| {one.group})", "| group_)")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.csv"
        kept = d.drop(columns="client") if formula.endswith(" ~ .") else d
        kept.to_csv(path, index=False)
        levels = "\t".join(one.levels.split(", ")) if one.levels else ""
        command = ["Rscript", "-e", FITS, str(path), family, formula, levels]
        done = subprocess.run(command, capture_output=True, text=True, env={"LC_ALL": "C", "PATH": "/usr/bin:/bin"})
    found, versions = {}, ""
    for line in csv.reader(io.StringIO(done.stdout), delimiter="\t", quoting=csv.QUOTE_NONE):
        if line[0] == "versions":
            versions = line[1]
        else:
            found[plain(line[0])] = [float("nan") if number == "NA" else float(number) for number in line[1:3]]
    if not versions:
        print(one.source, "R:", done.stderr[-400:], file=sys.stderr)
    return found, versions


class Rows(NamedTuple):
    """The complete rows of a data set as a model has them."""

    X: Vector  # of effects, which the priors are of, without the intercept
    names: list[str]  # of coefficients
    K: Vector  # from effects to the constant and these
    y: Any  # the response: numbers, (successes, trials), or (entry, time, event)
    levels: list[str]
    group: NDArray[np.int64] | None
    client: NDArray[np.int64]
    offset: Vector


def design(one: DataSet, d: pd.DataFrame) -> Rows:
    """Returns what a data set's formula makes of its rows."""
    d = d.rename(columns=plain_column)
    left, right = one.formula.split(" ~ ")
    left, right = plain_text(left), plain_text(right)
    columns = [name for name in d.columns if re.search(rf"\b{re.escape(name)}\b", f"{left} {right}")]
    if right == ".":
        columns = [name for name in d.columns if name != "client"]
    d = d.dropna(subset=columns)
    if left.count(", ") == 2:  # R counts no row that is not seen for a while
        d = d.query("{} < {}".format(*re.findall(r"\w+", left)[1:3]))
    d = d.reset_index(drop=True)
    offset = np.zeros(len(d))
    if found := re.search(r" \+ offset\((log\()?(\w+)\)+", right):
        offset = d[found[2]].to_numpy(float)
        offset = np.log(offset) if found[1] else offset
        right = right.replace(found[0], "")
    group = None
    if found := re.search(r" \+ \(1 \| (\w+)\)", right):
        group = np.unique([f"{a} {b}" for a, b in zip(d["client"], d[found[1]])], return_inverse=True)[1]
        right = right.replace(found[0], "")
    if right == ".":
        parts = {name: _labels(d[name], name) for name in columns if name != left}
        X = pd.concat(parts.values(), axis=1)
        made = [name for name, own in parts.items() for _ in own.columns if own.shape[1] > 1 or not _numeric(d[name])]
        coded = [any(name == f"{of}={label}" for of in set(made) for label in [name.partition("=")[2]]) for name in X.columns]
    else:
        text = re.sub(r"\b(as\.)?factor\(", "C(", right).replace("^", "**")
        text = re.sub(r"I\((.*?)\)", r"{\1}", text)
        matrix = formulaic.model_matrix(text, d.drop(columns="client"), context={"log": np.log})
        X = matrix.drop(columns="Intercept")
    Z = X.to_numpy(float)
    y, levels, weight = _response(one, left, d)
    weight = np.ones(len(d)) if weight is None else weight
    client = np.unique(d["client"], return_inverse=True)[1]
    if right == ".":
        center = np.where(coded, 0.0, np.average(Z, axis=0, weights=weight))
        scale = np.where(coded, 1.0, np.sqrt(np.average((Z - center) ** 2, axis=0, weights=weight)))
        effects, K = (Z - center) / scale, np.vstack([-center / scale, np.diag(1 / scale)])
    else:
        effects = _effects(matrix.model_spec.formula, d.drop(columns="client"), weight)
        K = np.linalg.lstsq(np.column_stack([np.ones(len(Z)), Z]), effects)[0]
    return Rows(effects, list(X.columns), K, y, levels, group, client, offset)


def _effects(terms: Any, d: pd.DataFrame, weight: Vector) -> Vector:
    """Returns the columns that a job's default priors are of: one a level, numbers about their means, and products of these."""

    def columns(factor: str) -> Vector:
        of, _, power = factor.strip("{}").replace(" ", "").partition("**")
        own = formulaic.model_matrix(f"0 + {of if power else factor}", d, context={"log": np.log}).to_numpy(float)
        if own.shape[1] > 1:
            return own
        own = own - np.average(own, axis=0, weights=weight)
        return (own / np.sqrt(np.average(own**2, axis=0, weights=weight))) ** int(power or 1)

    every = []
    for term in terms:
        if str(term) == "1":
            continue
        made = np.ones((len(d), 1))
        for factor in term.factors:
            made = (made[:, :, np.newaxis] * columns(str(factor))[:, np.newaxis]).reshape(len(d), -1)
        every.append(made)
    return np.hstack(every)


def plain_column(name: str) -> str:
    return re.sub(r"\W", "_", str(name))


def plain_text(text: str) -> str:
    """Returns a side of a formula whose columns have plain names."""
    text = re.sub(r"`([^`]*)`", lambda found: plain_column(found[1]), text)
    return re.sub(r"(?<=[A-Za-z])\.(?=\w)", "_", text)


def _numeric(column: pd.Series) -> bool:
    return bool(pd.api.types.is_numeric_dtype(column)) and column.dtype != bool


def _labels(column: pd.Series, name: str) -> pd.DataFrame:
    if _numeric(column):
        return column.to_frame(name).astype(float)
    labels = column.cat.categories if isinstance(column.dtype, pd.CategoricalDtype) else sorted(column.astype(str).unique())
    return pd.DataFrame({f"{name}={label}": (column.astype(str) == label) * 1.0 for label in labels})


def _response(one: DataSet, left: str, d: pd.DataFrame) -> tuple[Any, list[str], Vector | None]:
    """Returns the response, its levels, and how often each row counts in the columns' means."""
    inside = re.sub(r"^\w+\(|\)$", "", left).split(", ")
    if left.startswith("Surv("):
        entry, time, event = [None, *inside][-3:]
        status = d[event].to_numpy(float)
        status = status - (status.max() - 1 if set(status) <= {1.0, 2.0} else 0)
        begun = np.zeros(len(d)) if entry is None else d[entry].to_numpy(float)
        return (begun, d[time].to_numpy(float), status), [], None
    if left.startswith("cbind("):
        successes = d[inside[0]].to_numpy(float)
        trials = d[inside[1].split(" - ")[0]].to_numpy(float) + (0 if " - " in inside[1] else successes)
        return (successes, trials), [], trials
    column = d[left]
    if one.family in ("ordinal", "multinomial") or (one.family == "bernoulli" and not _numeric(column)):
        values = sorted(column.unique())
        levels = one.levels.split(", ") if one.levels else [re.sub(r"\.0$", "", str(value)) for value in values]
        labels = [re.sub(r"\.0$", "", str(value)) for value in column]
        return np.array([levels.index(label) for label in labels], float), levels, None
    return column.to_numpy(float), [], None


class Priors(NamedTuple):
    """The standard deviations of coefficients' priors, of columns with one of 1, and of the intercept's."""

    prior_sd: float = 2.5
    intercept_sd: float = 5.0


class Model(NamedTuple):
    """A family's model of a data set's rows.

    Attributes
    ----------
    starts : the numbers that are sampled, where the search for the mode begins
    density : log density of them, with the prior
    published : draws of them (S, size) -> those of what a result publishes
    """

    starts: Vector
    density: Callable[[Any], Any]
    published: Callable[[Vector], dict[str, Vector]]


def posterior(model: Model) -> dict[str, dict[str, float]]:
    """Name -> mean, sd and effective draws of the posterior, on the data's scale.

    Draws are weighted ones about the mode, from a t distribution whose mean and covariance follow the weights; where they stay
    worth few, as of scores of coefficients, they are those of NUTS.
    """
    one, several = jax.jit(jax.value_and_grad(lambda xi: -model.density(xi))), jax.jit(jax.vmap(model.density))

    def slope(xi: Vector) -> Vector:
        return np.asarray(one(xi)[1], float)

    found = minimize(lambda xi: float(one(xi)[0]), model.starts, jac=slope, method="BFGS")
    mean, size, rng = found.x, len(found.x), np.random.default_rng(0)
    steps = 1e-4 * np.eye(size)
    curvature = np.array([slope(mean + step) - slope(mean - step) for step in steps]) / 2e-4
    covariance = np.linalg.inv((curvature + curvature.T) / 2)
    draws, log_weights = np.empty((0, size)), np.empty(0)
    degrees = max(8, 2 * size)  # of many dimensions a t distribution's radius would vary more than any posterior's
    for turn in range(TURNS):
        own = multivariate_t(mean, covariance, df=degrees, seed=rng)
        new = np.atleast_2d(own.rvs(DRAWS)).reshape(DRAWS, size)
        values = np.concatenate([np.asarray(several(part)) for part in np.split(new, DRAWS // AT_ONCE)])
        logs = np.where(np.isfinite(values), values - own.logpdf(new), -np.inf)
        if turn < ADAPTING:
            draws, log_weights = new, logs
        else:
            draws, log_weights = np.concatenate([draws, new]), np.concatenate([log_weights, logs])
        weights: Vector = np.exp(log_weights - log_weights.max())
        weights /= weights.sum()
        worth = 1 / (weights**2).sum()
        if turn < ADAPTING and worth > 10 * size:
            mean, scatter = weights @ draws, draws - weights @ draws
            covariance = (scatter.T * weights) @ scatter * (degrees - 2) / degrees
        if turn >= ADAPTING and worth > ENOUGH:
            break
    if worth < LEAST:
        draws, worth = _nuts(model, mean, np.linalg.cholesky(covariance)), 0.0
        weights = np.full(len(draws), 1 / len(draws))
    told = {}
    for name, own in model.published(draws).items():
        middle = float(weights @ own)
        ess = worth or float(effective_sample_size(own.reshape(CHAINS, -1)))
        told[plain(name)] = {"mean": middle, "sd": float(weights @ (own - middle) ** 2) ** 0.5, "ess": ess}
    return told


def _nuts(model: Model, mean: Vector, root: Vector) -> Vector:
    """Returns draws of NUTS, of coordinates whose covariance is about 1."""
    kernel = numpyro.infer.NUTS(potential_fn=lambda z: -model.density(mean + root @ z))
    how = {"chain_method": "vectorized", "progress_bar": False}
    mcmc = numpyro.infer.MCMC(kernel, num_warmup=300, num_samples=1000, num_chains=CHAINS, **how)
    mcmc.run(jax.random.PRNGKey(0), init_params=jnp.zeros((CHAINS, len(mean))))
    return mean + np.asarray(mcmc.get_samples()) @ root.T


OF_EFFECTS = 2.5  # the scale of the prior of their sd, of responses without a unit


def _normal(x: Any, mean: Any, sd: float) -> Any:
    return -0.5 * jnp.sum(((x - mean) / sd) ** 2)


def _over_groups(group: NDArray[np.int64], terms: Callable[[Any], Any], eta: Any, tau: Any) -> Any:
    """Sums log-likelihoods `terms(eta)` of rows, over the effects of their groups by nodes about each group's mode."""
    m = int(group.max()) + 1

    def total(each: Any) -> Any:
        return jax.ops.segment_sum(each, group, m)

    def slopes(z: Any) -> tuple[Any, Any]:
        ones = jnp.ones_like(eta)

        def slope(at: Any) -> Any:
            return jax.jvp(terms, (at,), (ones,))[1]

        first, second = jax.jvp(slope, (eta + tau * z[group],), (ones,))
        return tau * total(first) - z, 1 - tau**2 * total(jnp.minimum(second, 0))

    z = jnp.zeros(m)
    for _ in range(8):
        up, curve = slopes(z)
        z = z + jnp.clip(up / curve, -2, 2)
    z, width = jax.lax.stop_gradient(z), jax.lax.stop_gradient(slopes(z)[1] ** -0.5)
    nodes, node_weights = np.polynomial.hermite_e.hermegauss(15)
    at = z + width * nodes[:, np.newaxis]
    values = jax.vmap(lambda own: total(terms(eta + tau * own[group])))(at) - 0.5 * at**2
    logs = values + 0.5 * nodes[:, np.newaxis] ** 2 + np.log(node_weights)[:, np.newaxis]
    return jnp.sum(jax.scipy.special.logsumexp(logs, axis=0) + jnp.log(width)) - 0.5 * m * np.log(2 * np.pi)


def _regression(
    rows: Rows,
    priors: Priors,
    terms: Callable[[Any, Any], Any],
    level: float | None,
    *,
    unit: float = 1.0,
    more: Sequence[float] = (),
    prior: Callable[[Any], Any] = lambda more: 0.0,
    published: Callable[[Vector], dict[str, Vector]] = lambda more: {},
) -> Model:
    """Returns the model of rows with one linear predictor.

    Parameters
    ----------
    terms : linear predictors and the family's numbers -> log-likelihood of each row
    level, unit : about which the intercept is, and its unit; without one None
    more, prior, published : where the family's numbers start, the log of their prior, and what of them is published
    """
    p, has = rows.X.shape[1], level is not None
    free = p + has + len(more)

    def density(xi: Any) -> Any:
        beta, numbers = xi[:p], xi[p + has : free]
        eta = rows.X @ beta + rows.offset + (xi[p] if has else 0.0)
        found = _normal(beta, 0.0, priors.prior_sd * unit) + prior(numbers)
        found += _normal(xi[p], level, priors.intercept_sd * unit) if has else 0.0
        if rows.group is None:
            return found + jnp.sum(terms(eta, numbers))
        tau = jnp.exp(xi[free])
        found += xi[free] - 2 * jnp.log1p(
            (tau / (unit if unit != 1.0 else OF_EFFECTS)) ** 2 / 3
        )  # half-Student, as the default is
        return found + _over_groups(rows.group, lambda at: terms(at, numbers), eta, tau)

    def told(draws: Vector) -> dict[str, Vector]:
        constant, *slopes = rows.K @ draws[:, :p].T
        found = {f"theta[{name}]": slopes[j] for j, name in enumerate(rows.names) if "=" not in name}
        for name in dict.fromkeys(name.partition("=")[0] for name in rows.names if "=" in name):
            own = [j for j, label in enumerate(rows.names) if label.startswith(f"{name}=")]
            first = rows.names[own[0]].partition("=")[2]
            for j in own[1:]:
                found[f"{name}[{rows.names[j].partition('=')[2]} vs {first}]"] = slopes[j] - slopes[own[0]]
        # Without a formula each label has a coefficient, and the intercept is none of R's.
        if has and not any("=" in name for name in rows.names):
            found["intercept"] = draws[:, p] + constant
        if rows.group is not None:
            found["group_sd[intercept]"] = np.exp(draws[:, free])
        numbers = published(draws[:, p + has : free])
        return found | {name: own - constant if name.startswith("threshold") else own for name, own in numbers.items()}

    starts = np.concatenate([np.zeros(p), [level] if has else [], more, [] if rows.group is None else [np.log(0.5 * unit)]])
    return Model(starts, density, told)


def _gaussian(rows: Rows, priors: Priors) -> Model:
    sd = float(rows.y.std())

    def terms(eta: Any, more: Any) -> Any:
        return -0.5 * ((rows.y - eta) / jnp.exp(more[0])) ** 2 - more[0]

    return _regression(
        rows,
        priors,
        terms,
        float(rows.y.mean()),
        unit=sd,
        more=[np.log(sd)],
        prior=lambda more: more[0] - 0.5 * (jnp.exp(more[0]) / sd) ** 2,
        published=lambda more: {"sigma": np.exp(more[:, 0])},
    )


def _bernoulli(rows: Rows, priors: Priors) -> Model:
    y, n = rows.y if isinstance(rows.y, tuple) else (rows.y, np.ones(len(rows.y)))
    share = y.sum() / n.sum()
    return _regression(rows, priors, lambda eta, more: y * eta - n * jnp.logaddexp(0, eta), float(np.log(share / (1 - share))))


def _poisson(rows: Rows, priors: Priors) -> Model:
    level = float(np.log(rows.y.sum() / np.exp(rows.offset).sum()))
    return _regression(rows, priors, lambda eta, more: rows.y * eta - jnp.exp(eta), level)


def _negative_binomial(rows: Rows, priors: Priors) -> Model:
    def terms(eta: Any, more: Any) -> Any:
        r = jnp.exp(-2 * more[0])
        counts = gammaln(rows.y + r) - gammaln(r)
        return counts + r * (-2 * more[0]) + rows.y * eta - (rows.y + r) * jnp.logaddexp(eta, -2 * more[0])

    return _regression(
        rows,
        priors,
        terms,
        float(np.log(rows.y.sum() / np.exp(rows.offset).sum())),
        more=[0.0],
        prior=lambda more: more[0] - jnp.logaddexp(0.0, 2 * more[0]),  # 1 / sqrt r ~ HalfCauchy(1)
        published=lambda more: {"dispersion": np.exp(2 * more[:, 0])},
    )


def _gamma(rows: Rows, priors: Priors) -> Model:
    def terms(eta: Any, more: Any) -> Any:
        shape = jnp.exp(more[0])
        return shape * (more[0] - eta) - gammaln(shape) + (shape - 1) * np.log(rows.y) - shape * rows.y * jnp.exp(-eta)

    return _regression(
        rows,
        priors,
        terms,
        float(np.log(rows.y.mean())),
        more=[0.0],
        prior=lambda more: -more[0] / 2 - jnp.logaddexp(0.0, -more[0]),  # 1 / sqrt shape ~ HalfCauchy(1)
        published=lambda more: {"shape": np.exp(more[:, 0])},
    )


def _ordinal(rows: Rows, priors: Priors) -> Model:
    shares = np.bincount(rows.y.astype(int), minlength=len(rows.levels)) / len(rows.y)
    below = np.cumsum(shares)[:-1]
    centres = np.log(below / (1 - below))
    y = rows.y.astype(int)

    def cuts_of(more: Any) -> Any:
        return jnp.concatenate([more[:1], more[0] + jnp.cumsum(jnp.exp(more[1:]))])

    def terms(eta: Any, more: Any) -> Any:
        cuts = cuts_of(more)
        edges = jnp.concatenate([jnp.array([-60.0]), cuts, jnp.array([60.0])])
        high, low = edges[y + 1] - eta, edges[y] - eta
        return jax.nn.log_sigmoid(high) + jax.nn.log_sigmoid(-low) + jnp.log1p(-jnp.exp(low - high))

    def published(more: Vector) -> dict[str, Vector]:
        cuts = np.column_stack([more[:, 0], more[:, :1] + np.cumsum(np.exp(more[:, 1:]), axis=1)])
        return {f"threshold[{low}|{high}]": cuts[:, j] for j, (low, high) in enumerate(pairwise(rows.levels))}

    return _regression(
        rows,
        priors,
        terms,
        None,
        more=[float(centres[0]), *np.zeros(len(rows.levels) - 2)],
        prior=lambda more: (
            _normal(cuts_of(more).mean(), float(centres.mean()), priors.intercept_sd) + _normal(more[1:], 0.0, 1.5)
        ),
        published=published,
    )


def _multinomial(rows: Rows, priors: Priors) -> Model:
    y = rows.y.astype(int)
    shares, p = np.bincount(y) / len(y), rows.X.shape[1] + 1
    X = np.column_stack([np.ones(len(y)), rows.X])
    centres = np.log(shares[1:] / shares[0])

    def density(xi: Any) -> Any:
        B = xi.reshape(-1, p)
        eta = jnp.concatenate([jnp.zeros((len(y), 1)), X @ B.T], axis=1)
        rest = jnp.sum(jnp.take_along_axis(jax.nn.log_softmax(eta, axis=1), y[:, np.newaxis], axis=1))
        return rest + _normal(B[:, 0], centres, priors.intercept_sd) + _normal(B[:, 1:], 0.0, priors.prior_sd)

    def published(draws: Vector) -> dict[str, Vector]:
        B, found = draws.reshape(len(draws), -1, p), {}
        for j, level in enumerate(rows.levels[1:]):
            constant, *slopes = rows.K @ B[:, j, 1:].T
            found[f"theta[{level}:intercept]"] = B[:, j, 0] + constant
            found |= {f"theta[{level}:{name}]": own for name, own in zip(rows.names, slopes, strict=True)}
        return found

    return Model(np.column_stack([centres, np.zeros((len(centres), p - 1))]).ravel(), density, published)


def _weibull(rows: Rows, priors: Priors) -> Model:
    entry, time, event = rows.y
    unit = (time - entry).sum() / event.sum()
    logs = np.log(time / unit)

    def terms(eta: Any, more: Any) -> Any:
        k = jnp.exp(more[0])
        return event * (more[0] + (k - 1) * logs + eta) - jnp.exp(k * logs + eta)

    model = _regression(rows, priors, terms, 0.0, more=[0.0], prior=lambda more: _normal(more[0], 0.0, 1.0))

    def published(draws: Vector) -> dict[str, Vector]:
        shape, told = np.exp(draws[:, rows.X.shape[1] + 1]), model.published(draws)
        return {**told, "intercept": told["intercept"] - shape * np.log(unit), "shape": shape}

    return model._replace(published=published)


def _cox(rows: Rows, priors: Priors) -> Model:
    """Efron's partial likelihood, stratified by client."""
    entry, time, event = rows.y
    dead, weights = [], []
    for client in np.unique(rows.client):
        own = rows.client == client
        for t in np.unique(time[own & (event == 1)]):
            dying = own & (time == t) & (event == 1)
            dead += np.flatnonzero(dying).tolist()
            # A row at risk weighs 1, less the part of those who have had their event.
            weights += [1.0 * (own & (time >= t) & (entry < t)) - k / dying.sum() * dying for k in range(dying.sum())]
    at, W = np.array(dead), np.array(weights)
    none = np.zeros(len(time) - len(at))

    def terms(eta: Any, more: Any) -> Any:
        return jnp.concatenate([eta[at] - jnp.log(W @ jnp.exp(eta)), none])

    return _regression(rows, priors, terms, None)


MODELS: dict[str, Callable[[Rows, Priors], Model]] = {
    "gaussian": _gaussian,
    "bernoulli": _bernoulli,
    "binomial": _bernoulli,
    "poisson": _poisson,
    "negative-binomial": _negative_binomial,
    "gamma": _gamma,
    "ordinal": _ordinal,
    "multinomial": _multinomial,
    "weibull": _weibull,
    "cox": _cox,
}


def write_references(wanted: Iterable[tuple[DataSet, Fitted]], folder: Path, path: Path) -> None:
    """Adds those that the file has not, of families that are written here."""
    stored = json.loads(path.read_text()) if path.exists() else {"versions": {}, "sets": {}}
    for one, fitted in wanted:
        name = fitted.named(one.source)
        if name in stored["sets"] or fitted.family not in MODELS:
            continue
        d = fitted.rows(one.rows(folder))
        found, versions = estimates(one, fitted.family, d)
        rows = design(one, d)
        told = posterior(MODELS[fitted.family](rows, Priors(**fitted.priors)))
        stored["sets"][name] = {"rows": len(rows.X), "R": found, "posterior": told}
        stored["versions"] = {"R": versions or stored["versions"].get("R", ""), "jax": jax.__version__}
        stored["versions"] |= {"formulaic": formulaic.__version__, "python": platform.python_version()}
        path.write_text(json.dumps(stored, indent=1) + "\n")
        print(name, f"{furthest(stored['sets'][name])}", file=sys.stderr, flush=True)


def furthest(one: dict[str, Any]) -> str:
    """Says which posterior mean lies furthest from R's estimate, in its sds, and which numbers only one of the two has."""
    shared = [name for name in one["posterior"] if name in one["R"]]
    shifts = {name: (one["posterior"][name]["mean"] - one["R"][name][0]) / one["posterior"][name]["sd"] for name in shared}
    name = max(shifts, key=lambda name: abs(shifts[name]), default="")
    least = min(own["ess"] for own in one["posterior"].values())
    alone = sorted(set(one["R"]) ^ set(one["posterior"]))
    return f"{name} {shifts.get(name, 0):.2f} sd from R, ess {least:.0f}, only one has {alone}"
