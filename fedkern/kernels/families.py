"""Describes families of likelihoods: one record each, with everything in which they differ. All other modules ask these records.

One row has a linear predictor eta and a log-density l(eta) = log p(y | eta), normalised in y:

=================== ================== ============================================================
family              y                  E[y | eta]
=================== ================== ============================================================
"poisson"           0, 1, 2, ..        exp(eta)
"binomial"          0 .. trials        trials / (1 + exp(-eta))
"negative-binomial" 0, 1, 2, ..        exp(eta), with variance exp(eta) + exp(2 eta) / `scale`
"bernoulli"         0 or 1             1 / (1 + exp(-eta))
".. -probit"        as without         trials Phi(eta)
".. -cloglog"       as without         trials (1 - exp(-exp(eta)))
"gaussian"          real               eta, with standard deviation `scale`
"student"           real               eta, where it exists; `scale`: (sd, degrees of freedom)
"gamma"             above 0            exp(eta), with variance exp(2 eta) / `scale`
"beta"              between 0 and 1    1 / (1 + exp(-eta)), with precision `scale`
"zero-inflated-.."  0, 1, 2, ..        (1 - pi) exp(eta); `scale`: pi, or (r, pi)
"hurdle-.."         0, 1, 2, ..        likewise, where counts are above 0 but for a part pi: exp(eta) over P(count > 0)
"poisson-lognormal" 0, 1, 2, ..        exp(eta + e), e normal with standard deviation `scale`, of each row
"beta-binomial"     0 .. trials        as "binomial", with chances that are beta numbers, of the precision `scale`
"lognormal"         above 0            log y has the mean eta and the standard deviation `scale`
"inverse-gaussian"  above 0            exp(eta), with variance exp(3 eta) / `scale`
"ordinal"           0 .. K - 1         eta, which is that of the latent number (`ordered`)
=================== ================== ============================================================

Kernels average the logistic families by a quadrature whose errors a negative binomial multiplies by y + scale, until scale is so
far above the rate that a series takes its place (docs/spec/pvi.md, section 3.1).

A new family is a record here, listed in `RECORDS`, with the fields that its methods need (`NEEDED`). Where kernels take it
(`code`) CONTRIBUTING.md lists the other places; kernels refuse a number that they have no case of. Keys, checks of cells and of
jobs, cases of the conformance test and texts follow from the record. Source: vertical.md, sections 1, 8, 9 and 11.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..arrays import Vector
from . import _declared as by_jets
from . import _rows as of
from . import ordered
from ._jets import declared
from ._rows import expit, gammaln, softplus, special

Scale = float | Vector  # a number, or (m, 1) where eta is (m, n); of several numbers one a row, (k, ..)
Trials = Vector | None
MOST = 30.0  # of a logarithm of a rate
HALF_LOG_TAU = of.HALF_LOG_TAU


# What families have in common --------------------


@dataclass(frozen=True)
class Domain:
    """Describes the values that a response may have.

    Attributes
    ----------
    words : the values in words
    has : y -> whether each number is such a value
    remedy : the advice for a cell that holds another value

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import families
    >>> even = families.Domain("an even number", lambda y: y % 2 == 0)
    >>> even.has(np.array([2.0, 3.0]))
    array([ True, False])
    """

    words: str
    has: Callable[[Vector], NDArray[np.bool_]]
    remedy: str = "correct or remove the row"


class Source(Protocol):
    """Supplies a sampler's random numbers: uniform ones in (0, 1), and standard normal ones.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import families
    >>> class Numpy(families.Source):
    ...     def __init__(self, seed):
    ...         self.random = np.random.default_rng(seed)
    ...     def uniform(self, n):
    ...         return self.random.uniform(size=n)
    ...     def normal(self, n):
    ...         return self.random.normal(size=n)
    ...
    >>> families.FAMILIES["bernoulli"].draw(Numpy(7), np.array([0.0, 1.0]), 1.0, None)
    array([0., 1.])
    """

    def uniform(self, n: int) -> Vector: ...

    def normal(self, n: int) -> Vector: ...


BINARY = Domain("0 or 1", lambda y: (y == 0) | (y == 1))
COUNTS = Domain("a count (0, 1, 2, ...)", lambda y: (y >= 0) & (y == np.floor(y)) & np.isfinite(y))
REAL = Domain("a finite number", lambda y: np.isfinite(y))
POSITIVE = Domain(
    "a number above 0",
    lambda y: (y > 0) & np.isfinite(y),
    'correct or remove the row: such a response has no zeros (of counts with zeros take "poisson" or "negative-binomial")',
)
SHARES = Domain(
    "a number above 0 and below 1",
    lambda y: (y > 0) & (y < 1),
    'correct or remove the row: a beta response is never all or nothing (of successes of trials: "binomial" with data.trials)',
)
LEVELS = Domain("the number of a level", lambda y: (y >= 0) & (y == np.floor(y)) & np.isfinite(y))


@dataclass(frozen=True)
class Unknown:
    """Describes a dispersion that is learnt, as w = log scale.

    Attributes
    ----------
    slope : (y, eta, scale) -> dl / dw of each row
    prior : w -> its log-density, Jacobian included once, and the derivative
    curvature : w -> kappa >= -l'' for every y and eta; None where no such kappa exists

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import families
    >>> unknown = families.FAMILIES["gaussian"].dispersion.unknown
    >>> isinstance(unknown, families.Unknown), unknown.slope(np.array([2.0]), np.array([0.0]), 1.0)
    (True, array([3.]))
    """

    slope: Callable[[Vector, Vector, Scale], Vector]
    prior: Callable[[float], tuple[float, float]]
    curvature: Callable[[float], float] | None = None


@dataclass(frozen=True)
class Dispersion:
    """Describes the second number of a family.

    Attributes
    ----------
    words : the meaning of `scale`
    unknown : how it is learnt; None: it is given, or the family's methods learn it in their way
    learnt_by : the methods that learn it; to others it must be given

    Examples
    --------
    >>> from fedkern.kernels import families
    >>> dispersion = families.FAMILIES["gamma"].dispersion
    >>> isinstance(dispersion, families.Dispersion), dispersion.words
    (True, 'the shape')
    """

    words: str
    unknown: Unknown | None = None
    learnt_by: tuple[str, ...] = ()


# The fields that a record must have for a method to take it, beside those of every record.
NEEDED = {"pvi": ("code", "predictive"), "vertical": ("variance", "variance_words", "slope_words")}


@dataclass(frozen=True)
class Family:
    """Holds all that is known of a family. Its functions take all rows at once: y, eta (n,), its dispersion `scale`, and trials
    (n,).

    Attributes
    ----------
    name, code : the name in job files, the number in kernels; None: no kernel takes it
    also : other people's names of it
    link : the link of E[y]; "logit" and "log" have no unit, with "identity" eta has the unit of y
    domain : the values of y
    linear : whether -l'' is one number: sums over rows have the same weights in every round, and tell of the rows as much as
        least squares do. Messages of a family that does not say so are watched as those of one that tells more
    methods : the methods that take it
    level : the word of tables for E[y | eta] (of one trial, where y is binomial)
    part, normaliser, base : (y, eta, scale, trials), (scale), (y, scale, trials) -> terms of l: the only one that depends on eta,
        the one that depends on the scale alone, the rest
    slope, observed : (y, eta, scale, trials) -> l' and -l''; an eta that may be far off is first passed through `kept`
    expectation : (m, s, y, scale) -> E l, E l' and E l'' where eta ~ N(m, s^2); of every family with a code
    mean : eta -> E[y | eta]: for a binomial y of one trial, for a zero-inflated count without structural zeros
    draw : (source, mean, scale, trials) -> y of every row
    cdf : (y, mean, scale, trials) -> P(Y <= y)
    spread : (mean, scale, trials) -> Var Y
    information : (y, eta, scale, trials) -> about -l'' of each row where eta fits y, above 0
    curvature : (y, scale) -> kappa >= -l'' of each row for every eta; None where no such kappa exists
    local_curvature : (eta, scale) -> in that case, a kappa good for moves of eta by at most 1
    variance, variance_words : (y, scale) -> 1 / E(-l''), a row's variance on the link scale, at the mean of y
    least_variance : the least that this variance can be, for every y and eta
    slope_words : the numbers that clients can compute from slopes
    predictive : (y, mean, variance, scale) -> log-density of held-out rows, given the predictive mean and, when called, the
        predictor's variance
    noise : (mean, scale) -> the variance of (y - mean)^2 / Var Y; None: the mean says all, as where y is 0 or 1
    dispersion : the second number; None: the variance of y follows from its mean, and from its structural zeros
    share : (mean, scale) -> E[y] over `mean`, where the two differ
    curved : whether `share` depends on the mean
    concave : whether l is concave in eta, for every y: if not, a group's effect may have several modes
    trials : whether rows have a number of trials
    exact : (y, base, scale) -> ends of the exact 95 % interval of a level that was seen once, `base` being its exposure or its
        number of trials; None: no such interval without an error's standard deviation

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import families
    >>> poisson = families.FAMILIES["poisson"]
    >>> isinstance(poisson, families.Family), poisson.link
    (True, 'log')
    >>> y, eta = np.array([0.0, 2.0]), np.zeros(2)
    >>> poisson.value(y, eta, 1.0, None).round(3), poisson.slope(y, eta, 1.0, None)
    (array([-1.   , -1.693]), array([-1.,  1.]))
    """

    name: str
    code: int | None
    link: Literal["logit", "probit", "cloglog", "log", "identity"]
    domain: Domain
    methods: tuple[str, ...]
    level: str
    part: Callable[[Any, Any, Any, Any], Any]
    slope: Callable[[Any, Any, Any, Any], Vector]
    observed: Callable[[Any, Any, Any, Any], Vector]
    mean: Callable[[Vector], Vector]
    information: Callable[[Vector, Vector, Scale, Trials], Vector]
    draw: Callable[[Source, Vector, Scale, Trials], Vector]
    cdf: Callable[[Vector, Vector, Any, Any], Vector]
    spread: Callable[[Vector, Any, Any], Vector]
    normaliser: Callable[[Any], Any] = lambda scale: 0.0
    base: Callable[[Any, Any, Any], Any] = lambda y, scale, trials: 0.0 * y
    expectation: Callable[[Any, Any, Any, Any], Any] | None = None
    linear: bool = False
    curvature: Callable[[Any, Any], Any] | None = None
    local_curvature: Callable[[Vector, Any], Vector] | None = None
    variance: Callable[[Vector, Any], float] | None = None
    variance_words: str = ""
    least_variance: float = 0.0
    slope_words: str = ""
    predictive: Callable[[Vector, Vector, Callable[[], Vector], Scale], Vector] | None = None
    noise: Callable[[Vector, float], Vector] | None = None
    dispersion: Dispersion | None = None
    share: Callable[[Any, Scale], Any] | None = None
    curved: bool = False
    concave: bool = True
    trials: bool = False
    exact: Callable[[Vector, Vector, Scale], tuple[Vector, Vector]] | None = None
    also: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for method in self.methods:
            for field in NEEDED.get(method, ()):
                if getattr(self, field) in (None, ""):
                    raise ValueError(f'family "{self.name}": {method} takes it, so its record must have `{field}`')
            if method == "vertical" and (self.curvature is None) == (self.local_curvature is None):
                raise ValueError(
                    f'family "{self.name}": vertical takes it, so its record must have one of `curvature` and `local_curvature`'
                )

    @property
    def binary(self) -> bool:
        """Whether y is 0 or 1."""
        return self.domain is BINARY

    @property
    def leveled(self) -> bool:
        """Whether y is the number of a level, whose name the job has."""
        return self.domain is LEVELS

    @property
    def counted(self) -> bool:
        """Whether y is a count."""
        return self.domain is COUNTS

    @property
    def measured(self) -> bool:
        """Whether y has a unit, which is that of eta."""
        return self.link == "identity"

    @property
    def continuous(self) -> bool:
        """Whether y is a measurement, which may be any number, or any above 0."""
        return self.domain in (REAL, POSITIVE)

    @property
    def chances(self) -> bool:
        """Whether the mean is the probability of an event: of a row's, or of one in each of its trials."""
        return self.binary or self.trials

    @property
    def whole(self) -> bool:
        """Whether y is a count with a rate."""
        return self.counted and not self.trials

    def value(self, y: Any, eta: Any, scale: Any, trials: Any) -> Vector:
        """Returns l of every row."""
        return np.asarray(self.part(y, eta, scale, trials) + self.normaliser(scale) + self.base(y, scale, trials))

    def kept(self, eta: Vector) -> Vector:
        """Returns eta; of a logarithm of a rate, at most `MOST`."""
        return np.minimum(eta, MOST) if self.whole else eta

    def expected(self, mean: Any, scale: Scale) -> Any:
        """Returns E[y] for a value of the record's `mean`."""
        return mean if self.share is None else self.share(mean, scale) * mean

    @property
    def bounded(self) -> bool:
        """Whether one kappa is good for every y, given the scale."""
        return self.curvature is not None and bool(np.isfinite(self.curvature(np.inf, 1.0)))

    def lacks_scale(self, scale: float | str, method: str) -> bool:
        """Tells whether a job must give the scale that it leaves "unknown"."""
        return scale == "unknown" and self.dispersion is not None and method not in self.dispersion.learnt_by

    @property
    def scale_is_missing(self) -> str:
        """The sentence for a job that must give a scale."""
        words = "" if self.dispersion is None else self.dispersion.words
        return f'model.scale is missing: family = "{self.name}" does not learn {words}; give it'


def half_normal(log_scale: float) -> tuple[float, float]:
    """Returns the log-density of w = log sigma where sigma ~ HalfNormal(1), Jacobian included once, and its derivative.

    Examples
    --------
    >>> from fedkern.kernels import families
    >>> value, slope = families.half_normal(0.0)
    >>> round(value, 3), slope
    (-0.726, 0.0)
    """
    square = float(np.exp(2 * log_scale))
    return 0.5 * float(np.log(2 / np.pi)) - 0.5 * square + log_scale, 1 - square


def half_normal_root(log_r: float) -> tuple[float, float]:
    """Returns the log-density of w = log r where 1 / sqrt r ~ HalfNormal(1), Jacobian included once, and its derivative.

    Examples
    --------
    >>> from fedkern.kernels import families
    >>> value, slope = families.half_normal_root(1.0)
    >>> round(value, 3), round(slope, 3)
    (-1.603, -0.316)
    """
    value, slope = half_normal(-0.5 * log_r)
    return value - float(np.log(2)), -0.5 * slope


def _rate(eta: Vector) -> Vector:
    return np.asarray(np.exp(np.minimum(eta, MOST)))


def _smallest(guess: Vector, u: Vector, cdf: Callable[[Vector], Vector]) -> Vector:
    """Returns the smallest counts whose distribution function reaches u, from real numbers where it does."""
    y = np.ceil(np.nan_to_num(np.maximum(guess, 0.0)))  # nan where u is below the probability of 0
    return np.asarray(y - ((y > 0) & (cdf(np.maximum(y - 1, 0)) >= u)), dtype=np.float64)


# Exact intervals: each end is the level at which what was seen, or more, has probability 2.5 %; or what was seen, or less.
# Where y is 0 (or all of the trials) one end is that of the range: the functions are asked for y = 1 there, and not believed.

TAIL = 0.025


def _garwood(y: Vector, exposure: Vector, scale: Scale) -> tuple[Vector, Vector]:
    """Returns quantiles of chi-square with 2 y and 2 y + 2 degrees of freedom, halved (Garwood, 1936)."""
    low = np.where(y > 0, special("gammaincinv")(np.maximum(y, 1), TAIL), 0.0)
    return low / exposure, np.asarray(special("gammaincinv")(y + 1, 1 - TAIL) / exposure)


def _clopper_pearson(y: Vector, trials: Vector, scale: Scale) -> tuple[Vector, Vector]:
    """Returns quantiles of beta distributions (Clopper and Pearson, 1934)."""
    failures = trials - y
    low = np.where(y > 0, special("betaincinv")(np.maximum(y, 1), failures + 1, TAIL), 0.0)
    return low, np.where(failures > 0, special("betaincinv")(y + 1, np.maximum(failures, 1), 1 - TAIL), 1.0)


def _negative_exact(y: Vector, exposure: Vector, scale: Scale) -> tuple[Vector, Vector]:
    """Returns the ends for the same tails, which are incomplete beta functions of r / (r + mean)."""
    below = special("betaincinv")(scale, np.maximum(y, 1), 1 - TAIL)
    above = special("betaincinv")(scale, y + 1, TAIL)
    return np.where(y > 0, scale * (1 - below) / below, 0.0) / exposure, np.asarray(scale * (1 - above) / above / exposure)


# Poisson --------------------


def _counted_cdf(y: Vector, chances: tuple[Any, Any, Any], far: Callable[..., Vector], *rest: Any) -> Vector:
    """Returns P(Y <= y) of counts by their `chances`, as `of.added_up` takes them; far(y, *rest) where these are too many."""
    numbers = np.broadcast_arrays(y, *rest)
    _, below, large = of.added_up(2.0, np.floor(numbers[0]), *chances)
    below[large] = far(*(array.ravel()[large] for array in numbers))
    return np.minimum(below, 1.0).reshape(numbers[0].shape)


def _poisson_far(y: Vector, mean: Vector) -> Vector:
    return np.asarray(special("pdtr")(y, mean))


def _poisson_cdf(y: Vector, mean: Vector, scale: Scale, trials: Trials) -> Vector:
    return _counted_cdf(y, (np.exp(-mean), 0.0, mean), _poisson_far, mean)


MANY = 1e8  # mean counts from here on are drawn by the expansion alone


def _poisson_draw(source: Source, mean: Vector, scale: Scale, trials: Trials) -> Vector:
    u = source.uniform(len(mean))
    drawn, _, large = of.added_up(u, np.inf, np.exp(-mean), 0.0, mean)
    drawn[large] = _large_counts(u[large], mean[large])
    return drawn


def _large_counts(u: Vector, mean: Vector) -> Vector:
    """Returns the smallest counts whose distribution function reaches u: the expansion is right or nearly so, and is looked at.

    (SciPy's inverse takes a hundred times as long as the distribution function.)
    """
    drawn = _expanded(u, mean)
    few = np.flatnonzero(~(mean > MANY))
    y, u, mean = np.nan_to_num(drawn[few]), u[few], mean[few]
    far = np.flatnonzero((y > 0) & (_poisson_far(np.maximum(y - 1, 0), mean) >= u))
    while far.size:
        y[far] -= 1
        far = far[(y[far] > 0) & (_poisson_far(np.maximum(y[far] - 1, 0), mean[far]) >= u[far])]
    near = np.flatnonzero(_poisson_far(y, mean) < u)
    while near.size:
        y[near] += 1
        near = near[_poisson_far(y[near], mean[near]) < u[near]]
    drawn[few] = y
    return drawn


def _expanded(u: Vector, mean: Vector) -> Vector:
    """Returns about the smallest counts whose distribution function reaches u.

    Cornish and Fisher's expansion (1938) of the quantile up to 1 / sqrt(mean); a count stands for half a count on both sides. The
    next term is below (z^4 + 11 z^2) / mean, which moves one draw of millions by one count where mean counts are large.
    """
    z, root = special("ndtri")(u), np.sqrt(np.maximum(mean, 1.0))
    with np.errstate(invalid="ignore"):  # where u is 0
        return np.asarray(np.maximum(np.ceil(mean + root * z + (z**2 - 1) / 6 + (z - z**3) / (72 * root) - 0.5), 0.0))


POISSON = Family(
    name="poisson",
    also=("counts", "count", "log-linear", "loglinear"),
    code=1,
    link="log",
    domain=COUNTS,
    methods=("pvi", "vertical", "sigma", "likelihood"),
    level="rate",
    part=lambda y, eta, scale, trials: y * eta - np.exp(eta),
    base=lambda y, scale, trials: -gammaln(y + 1),
    slope=lambda y, eta, scale, trials: y - np.exp(eta),
    observed=lambda y, eta, scale, trials: np.exp(eta),
    expectation=of.poisson_expected,
    mean=_rate,
    information=lambda y, eta, scale, trials: y + 0.5,  # the half keeps rows without any from having none
    draw=_poisson_draw,
    cdf=_poisson_cdf,
    spread=lambda mean, scale, trials: mean,
    local_curvature=lambda eta, scale: np.asarray(np.exp(np.minimum(eta, MOST) + 1)),
    variance=lambda y, scale: 1 / max(float(np.mean(y)), 1e-12),
    variance_words="1 / the mean count",
    slope_words="y - rate",
    predictive=lambda y, mean, variance, scale: np.asarray(y * np.log(mean) - mean - gammaln(y + 1)),
    noise=lambda mean, scale: 2 + 1 / mean,
    exact=_garwood,
)

# Binomial --------------------


def _of_trials(y: Any, eta: Any, scale: Any, trials: Any) -> Any:
    p = expit(eta)
    n = 1.0 if trials is None else trials
    return n * p * (1 - p)


def _binomial_cdf(y: Vector, mean: Vector, scale: Scale, trials: Any) -> Vector:
    """Returns P(Y <= y) by the incomplete beta function, which takes real numbers."""
    return np.where(y < trials, special("betaincc")(y + 1, np.maximum(trials - y, 1), mean), 1.0)


def _binomial_draw(source: Source, mean: Vector, scale: Scale, trials: Trials) -> Vector:
    u, n = source.uniform(len(mean)), np.asarray(trials)
    with np.errstate(divide="ignore", invalid="ignore"):
        odds = mean / (1 - mean)
        drawn, _, large = of.added_up(u, np.inf, (1 - mean) ** n, -odds, (n + 1) * odds)
    u, n, p = u[large], n[large], mean[large]
    drawn[large] = _smallest(special("bdtrik")(u, n, p), u, lambda y: _binomial_cdf(y, p, scale, n))
    return drawn


BINOMIAL = Family(
    name="binomial",
    code=None,
    link="logit",
    domain=COUNTS,
    methods=("sigma", "likelihood"),
    level="probability",
    part=lambda y, eta, scale, trials: y * eta - trials * softplus(eta),
    base=lambda y, scale, trials: gammaln(trials + 1) - gammaln(y + 1) - gammaln(trials - y + 1),
    slope=lambda y, eta, scale, trials: y - trials * expit(eta),
    observed=_of_trials,
    mean=lambda eta: np.asarray(expit(eta)),
    information=_of_trials,
    draw=_binomial_draw,
    cdf=_binomial_cdf,
    spread=lambda mean, scale, trials: trials * mean * (1 - mean),
    trials=True,
    exact=_clopper_pearson,
)

# Negative binomial --------------------


def _negative_tail(y: Vector, mean: Vector, scale: Scale) -> Vector:
    return np.asarray(special("betaincc")(y + 1, scale, mean / (scale + mean)))


def _negative_cdf(y: Vector, mean: Vector, scale: Scale, trials: Trials) -> Vector:
    return _counted_cdf(y, _negative_chances(mean, scale), _negative_tail, mean, scale)


def _negative_draw(source: Source, mean: Vector, scale: Scale, trials: Trials) -> Vector:
    u = source.uniform(len(mean))
    drawn, _, large = of.added_up(u, np.inf, *_negative_chances(mean, scale))
    u, r, mean = u[large], np.broadcast_to(scale, u.shape)[large], mean[large]
    drawn[large] = _smallest(special("nbdtrik")(u, r, r / (r + mean)), u, lambda y: _negative_tail(y, mean, r))
    return drawn


def _negative_chances(mean: Vector, scale: Scale) -> tuple[Any, Any, Any]:
    """Returns P(Y = 0), and a and b of P(Y = k) = (a + b / k) P(Y = k - 1)."""
    share = mean / (scale + mean)
    return np.exp(-scale * np.log1p(mean / scale)), share, (scale - 1) * share


NEGATIVE_BINOMIAL: Family = Family(
    name="negative-binomial",
    also=(
        "quasipoisson",
        "quasi-poisson",
        "nb",
        "nbinom",
        "nbinom2",
        "negbin",
        "negbinomial",
        "negativebinomial",
        "neg-binomial",
    ),
    code=3,
    link="log",
    domain=COUNTS,
    methods=("pvi", "vertical", "sigma", "likelihood"),
    level="rate",
    part=lambda y, eta, scale, trials: y * eta - (y + scale) * softplus(eta - np.log(scale)),
    base=lambda y, scale, trials: of.log_rising(y, scale) - gammaln(y + 1),
    slope=lambda y, eta, scale, trials: y - (y + scale) * expit(eta - np.log(scale)),
    observed=lambda y, eta, scale, trials: _of_trials(y, eta - np.log(scale), scale, y + scale),
    expectation=of.negative_expected,
    mean=_rate,
    information=lambda y, eta, scale, trials: (y + 0.5) * scale / (y + 0.5 + scale),
    draw=_negative_draw,
    cdf=_negative_cdf,
    spread=lambda mean, scale, trials: mean + mean**2 / scale,
    curvature=lambda y, scale: (y + scale) / 4,
    variance=lambda y, scale: 1 / max(float(np.mean(y)), 1e-12) + 1 / scale,
    variance_words="1 / the mean count + 1 / r",
    slope_words="r (y - rate) / (r + rate)",
    predictive=lambda y, mean, variance, scale: NEGATIVE_BINOMIAL.value(y, np.minimum(np.log(mean), MOST), scale, None),
    noise=lambda mean, scale: 2 + 6 / scale + 1 / (mean + mean**2 / scale),
    dispersion=Dispersion("r", Unknown(slope=of.negative_by_r, prior=half_normal_root), ("sigma",)),
    exact=_negative_exact,
)

# Bernoulli --------------------


def _bernoulli_predictive(y: Vector, mean: Vector, variance: Callable[[], Vector], scale: Scale) -> Vector:
    return np.asarray(np.log(np.where(y > 0.5, mean, 1 - mean) + 1e-10))


BERNOULLI = Family(
    name="bernoulli",
    also=("binomial", "binary", "logit", "logistic", "logreg", "quasibinomial"),
    code=0,
    link="logit",
    domain=BINARY,
    methods=("pvi", "sparse", "vertical", "sigma", "likelihood"),
    level="probability",
    part=lambda y, eta, scale, trials: -softplus(of.where(y > 0.5, -eta, eta)),
    slope=lambda y, eta, scale, trials: y - expit(eta),
    observed=_of_trials,
    expectation=of.bernoulli_expected,
    mean=lambda eta: np.asarray(expit(eta)),
    information=_of_trials,
    draw=lambda source, mean, scale, trials: (source.uniform(len(mean)) < mean).astype(np.float64),
    cdf=lambda y, mean, scale, trials: np.where(y >= 1, np.ones_like(mean), 1 - mean),
    spread=lambda mean, scale, trials: mean * (1 - mean),
    curvature=lambda y, scale: 0.25,
    variance=lambda y, scale: 4.0,
    variance_words="at least 4",
    least_variance=4.0,
    slope_words="y - p, whose signs are the labels",
    predictive=_bernoulli_predictive,
    exact=_clopper_pearson,
)

# Chances by other links --------------------

# link -> what eta makes of log P and log(1 - P), with slopes and minus curvatures; P
CHANCES: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "probit": (of.probit_logs, lambda eta: special("ndtr")(eta)),
    "cloglog": (of.cloglog_logs, lambda eta: -np.expm1(-np.exp(np.minimum(eta, of.MOST_ETA)))),
}


def _by_link(record: Family, link: Literal["probit", "cloglog"]) -> Family:
    """Returns the record of 0 and 1, or of successes of trials, with another link."""
    logs, mean = CHANCES[link]

    def sums(which: int) -> Callable[[Any, Any, Any, Any], Vector]:
        def of_rows(y: Any, eta: Any, scale: Any, trials: Any) -> Vector:
            (event, none), n = logs(eta), 1.0 if trials is None else trials
            return np.asarray(y * event[which] + (n - y) * none[which])

        return of_rows

    def information(y: Any, eta: Any, scale: Any, trials: Any) -> Vector:
        (_, rise, _), (_, fall, _) = logs(eta)
        return np.asarray(-(1.0 if trials is None else trials) * rise * fall)

    changed: dict[str, Any] = {"part": sums(0), "slope": sums(1), "observed": sums(2), "information": information}
    changed |= {"code": None, "also": (), "methods": (), "expectation": None, "curvature": None}
    return replace(record, name=f"{record.name}-{link}", link=link, mean=mean, **changed)


BERNOULLI_PROBIT, BINOMIAL_PROBIT = _by_link(BERNOULLI, "probit"), _by_link(BINOMIAL, "probit")
BERNOULLI_CLOGLOG, BINOMIAL_CLOGLOG = _by_link(BERNOULLI, "cloglog"), _by_link(BINOMIAL, "cloglog")

# Gaussian --------------------


def _gaussian_predictive(y: Vector, mean: Vector, variance: Callable[[], Vector], scale: Scale) -> Vector:
    total = variance() + scale**2
    return np.asarray(-0.5 * np.log(2 * np.pi * total) - (y - mean) ** 2 / (2 * total))


GAUSSIAN = Family(
    name="gaussian",
    also=("normal", "linear", "lm", "ols", "identity", "continuous"),
    code=2,
    link="identity",
    domain=REAL,
    linear=True,
    methods=("pvi", "sparse", "vertical", "sigma", "likelihood"),
    level="mean",
    part=lambda y, eta, scale, trials: -0.5 * ((y - eta) / scale) ** 2,
    normaliser=lambda scale: -np.log(scale),
    base=lambda y, scale, trials: 0.0 * y - HALF_LOG_TAU,
    slope=lambda y, eta, scale, trials: (y - eta) / scale**2,
    observed=lambda y, eta, scale, trials: 0.0 * eta + scale**-2,
    expectation=of.gaussian_expected,
    mean=lambda eta: eta,
    information=lambda y, eta, scale, trials: np.full(len(y), float(scale) ** -2),
    draw=lambda source, mean, scale, trials: np.asarray(mean + scale * source.normal(len(mean))),
    cdf=lambda y, mean, scale, trials: np.asarray(special("ndtr")((y - mean) / scale)),
    spread=lambda mean, scale, trials: np.broadcast_to(np.asarray(scale) ** 2, np.shape(mean)),
    curvature=lambda y, scale: scale**-2,
    variance=lambda y, scale: float(scale) ** 2,
    variance_words="sigma^2",
    slope_words="from which y follows once Z is known",
    predictive=_gaussian_predictive,
    noise=lambda mean, scale: np.full(len(mean), 2.0),
    dispersion=Dispersion(
        "the standard deviation",
        Unknown(
            slope=lambda y, eta, scale: np.asarray(((y - eta) / scale) ** 2 - 1),
            prior=half_normal,
            curvature=lambda w: float(np.exp(-2 * w)),
        ),
        ("pvi", "sparse", "vertical", "sigma", "likelihood"),
    ),
)

# Student, gamma, beta --------------------

STUDENT: Family = Family(
    name="student",
    also=("robust", "t", "student-t", "studentt", "robust-linear", "rlm", "cauchy"),
    code=None,
    link="identity",
    domain=REAL,
    methods=("likelihood",),
    level="location",
    part=of.student_part,
    normaliser=of.student_normaliser,
    slope=of.student_slope,
    observed=of.student_observed,
    mean=lambda eta: eta,
    information=lambda y, eta, scale, trials: of.student_observed(y, y, scale, None),
    draw=of.student_draw,
    cdf=of.student_cdf,
    spread=of.student_spread,
    predictive=lambda y, mean, variance, scale: STUDENT.value(y, mean, scale, None),
    dispersion=Dispersion("standard deviation and degrees of freedom", None, ("likelihood",)),
    concave=False,
)

GAMMA: Family = Family(
    name="gamma",
    also=("positive", "gamma-log"),
    code=None,
    link="log",
    domain=POSITIVE,
    methods=("likelihood",),
    level="mean",
    part=of.gamma_part,
    normaliser=lambda scale: 0.5 * np.log(scale) - HALF_LOG_TAU - of.rest(scale),
    base=lambda y, scale, trials: -np.log(y),
    slope=of.gamma_slope,
    observed=lambda y, eta, scale, trials: of.gamma_slope(y, eta, scale, trials) + scale,
    mean=lambda eta: np.asarray(np.exp(np.minimum(eta, of.MOST_ETA))),
    information=lambda y, eta, scale, trials: np.broadcast_to(scale, np.shape(y)),
    draw=of.gamma_draw,
    cdf=of.gamma_cdf,
    spread=lambda mean, scale, trials: np.asarray(mean**2 / scale),
    predictive=lambda y, mean, variance, scale: GAMMA.value(y, np.log(mean), scale, None),
    dispersion=Dispersion("the shape", None, ("likelihood",)),
)

BETA: Family = Family(
    name="beta",
    also=("betareg", "proportion", "proportions", "beta-regression"),
    code=None,
    link="logit",
    domain=SHARES,
    methods=("likelihood",),
    level="mean",
    part=of.beta_part,
    normaliser=lambda scale: 0.5 * np.log(scale) - HALF_LOG_TAU + of.rest(scale),
    base=lambda y, scale, trials: -np.log(y) - np.log1p(-y),
    slope=of.beta_slope,
    observed=of.beta_observed,
    mean=lambda eta: np.asarray(expit(eta)),
    information=of.beta_information,
    draw=of.beta_draw,
    cdf=of.beta_cdf,
    spread=lambda mean, scale, trials: np.asarray(mean * (1 - mean) / (1 + scale)),
    predictive=lambda y, mean, variance, scale: BETA.value(y, np.log(mean) - np.log1p(-mean), scale, None),
    dispersion=Dispersion("the precision", None, ("likelihood",)),
    concave=False,
)

# Positive numbers by declaration --------------------

LOGNORMAL: Family = Family(
    name="lognormal",
    also=("log-normal", "loglinear-normal"),
    code=None,
    link="log",
    domain=POSITIVE,
    methods=("likelihood",),
    level="median",
    **declared(by_jets.lognormal_part),
    base=lambda y, scale, trials: -np.log(y) - HALF_LOG_TAU,
    mean=lambda eta: np.asarray(np.exp(np.minimum(eta, of.MOST_ETA))),
    information=lambda y, eta, scale, trials: np.broadcast_to(np.asarray(scale, np.float64) ** -2, np.shape(y)),
    draw=lambda source, mean, scale, trials: np.asarray(mean * np.exp(scale * source.normal(len(mean)))),
    cdf=lambda y, mean, scale, trials: np.asarray(special("ndtr")((np.log(y) - np.log(mean)) / scale)),
    spread=lambda mean, scale, trials: np.asarray(mean**2 * np.exp(scale**2) * np.expm1(scale**2)),
    predictive=lambda y, mean, variance, scale: LOGNORMAL.value(y, np.log(mean) - 0.5 * scale**2, scale, None),
    share=lambda mean, scale: np.exp(0.5 * np.asarray(scale) ** 2),
    dispersion=Dispersion("the standard deviation of logarithms", None, ("likelihood",)),
)

INVERSE_GAUSSIAN: Family = Family(
    name="inverse-gaussian",
    also=("inverse.gaussian", "inversegaussian", "wald", "ig"),
    code=None,
    link="log",
    domain=POSITIVE,
    methods=("likelihood",),
    level="mean",
    **declared(by_jets.inverse_gaussian_part),
    base=lambda y, scale, trials: -1.5 * np.log(y) - HALF_LOG_TAU,
    mean=lambda eta: np.asarray(np.exp(np.minimum(eta, of.MOST_ETA))),
    information=lambda y, eta, scale, trials: np.asarray(scale * np.exp(-np.asarray(eta)) + 0.0 * y),
    draw=by_jets.inverse_gaussian_draw,
    cdf=by_jets.inverse_gaussian_cdf,
    spread=lambda mean, scale, trials: np.asarray(mean**3 / scale),
    predictive=lambda y, mean, variance, scale: INVERSE_GAUSSIAN.value(y, np.log(mean), scale, None),
    dispersion=Dispersion("the shape", None, ("likelihood",)),
    concave=False,
)

# Successes of trials that vary more than a binomial --------------------

BETA_BINOMIAL: Family = Family(
    name="beta-binomial",
    also=("betabinomial", "betabin", "beta-bin"),
    code=None,
    link="logit",
    domain=COUNTS,
    methods=("likelihood",),
    level="probability",
    **(_of_beta := declared(by_jets.beta_binomial_part)),
    base=BINOMIAL.base,
    mean=BINOMIAL.mean,
    information=lambda y, eta, scale, trials: _of_beta["observed"](trials * expit(eta), eta, scale, trials),
    draw=by_jets.beta_binomial_draw,
    cdf=by_jets.beta_binomial_cdf,
    spread=lambda mean, scale, trials: trials * mean * (1 - mean) * (1 + (trials - 1) / (1 + scale)),
    dispersion=Dispersion("the precision", None, ("likelihood",)),
    concave=False,
    trials=True,
)

# Counts with structural zeros --------------------


def inflated(count: Family, scale_of: Callable[[Any], Any], logit: Callable[[Any], Any]) -> dict[str, Any]:
    """Returns the functions of a row that may be a structural zero from those of a count; `logit` is that of its probability.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import families
    >>> row = families.inflated(families.POISSON, lambda scale: 1.0, lambda scale: scale)
    >>> row["slope"](np.array([0.0, 1.0]), np.zeros(2), 0.0, None).round(3)
    array([-0.269,  0.   ])
    """

    def of_count(name: str, y: Any, eta: Any, scale: Any) -> Any:
        return getattr(count, name)(y, eta, scale_of(scale), None)

    def share(y: Any, eta: Any, scale: Any) -> Any:  # the probability that y is no structural zero
        return np.where(y > 0, 1.0, expit(of_count("part", y, eta, scale) - logit(scale)))

    def part(y: Any, eta: Any, scale: Any, trials: Any) -> Any:
        value = of_count("part", y, eta, scale)
        return np.where(y > 0, value, np.logaddexp(logit(scale), value))

    def observed(y: Any, eta: Any, scale: Any, trials: Any) -> Any:
        weight, slope = share(y, eta, scale), of_count("slope", y, eta, scale)
        return weight * of_count("observed", y, eta, scale) - (weight * slope) * ((1 - weight) * slope)

    return {
        "part": part,
        "normaliser": lambda scale: -softplus(logit(scale)),
        "base": lambda y, scale, trials: count.base(y, scale_of(scale), None),
        "slope": lambda y, eta, scale, trials: share(y, eta, scale) * of_count("slope", y, eta, scale),
        "observed": observed,
    }


def _logit(pi: Any) -> Any:
    return np.log(pi) - np.log1p(-pi)


ZERO_INFLATED_POISSON: Family = Family(
    name="zero-inflated-poisson",
    also=("zip", "zeroinfl", "zero-inflated"),
    code=None,
    link="log",
    domain=COUNTS,
    methods=("likelihood",),
    level="rate",
    **inflated(POISSON, lambda scale: 1.0, _logit),
    mean=_rate,
    information=POISSON.information,
    draw=lambda source, mean, scale, trials: of.inflated_draw(
        source, scale, lambda other: _poisson_draw(other, mean, 1.0, None), len(mean)
    ),
    cdf=lambda y, mean, scale, trials: of.inflated_cdf(y, _poisson_cdf(y, mean, 1.0, None), scale),
    spread=lambda mean, scale, trials: of.inflated_spread(mean, mean, scale),
    predictive=lambda y, mean, variance, scale: ZERO_INFLATED_POISSON.value(y, np.log(mean / (1 - scale)), scale, None),
    share=lambda mean, scale: 1 - scale,
    concave=False,
)


def _two(scale: Scale) -> tuple[Any, Any]:
    """Returns the two dispersions of a family that has two."""
    first, second = np.asarray(scale)
    return first, second


ZERO_INFLATED_NEGATIVE_BINOMIAL: Family = Family(
    name="zero-inflated-negative-binomial",
    also=("zinb", "zero-inflated-nb", "zinbinom"),
    code=None,
    link="log",
    domain=COUNTS,
    methods=("likelihood",),
    level="rate",
    **inflated(NEGATIVE_BINOMIAL, lambda scale: _two(scale)[0], lambda scale: _logit(_two(scale)[1])),
    mean=_rate,
    information=lambda y, eta, scale, trials: NEGATIVE_BINOMIAL.information(y, eta, _two(scale)[0], None),
    draw=lambda source, mean, scale, trials: of.inflated_draw(
        source, _two(scale)[1], lambda other: _negative_draw(other, mean, _two(scale)[0], None), len(mean)
    ),
    cdf=lambda y, mean, scale, trials: of.inflated_cdf(y, _negative_cdf(y, mean, _two(scale)[0], None), _two(scale)[1]),
    spread=lambda mean, scale, trials: of.inflated_spread(mean, mean + mean**2 / _two(scale)[0], _two(scale)[1]),
    predictive=lambda y, mean, variance, scale: ZERO_INFLATED_NEGATIVE_BINOMIAL.value(
        y, np.log(mean / (1 - _two(scale)[1])), scale, None
    ),
    dispersion=Dispersion("r and the probability of a structural zero", None, ("likelihood",)),
    share=lambda mean, scale: 1 - _two(scale)[1],
    concave=False,
)

# Counts beyond a hurdle: 0 with probability pi, and else above 0 --------------------


def hurdled(count: Family, scale_of: Callable[[Any], Any], logit: Callable[[Any], Any]) -> dict[str, Any]:
    """Returns the functions of a row that is 0, or a count above 0, from those of a count; `logit` is that of a 0's probability.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import families
    >>> row = families.hurdled(families.POISSON, lambda scale: 1.0, lambda scale: scale)
    >>> row["slope"](np.array([0.0, 1.0]), np.zeros(2), 0.0, None).round(3)
    array([ 0.   , -0.582])
    """

    def of_rows(y: Any, eta: Any, scale: Any) -> tuple[Any, Any, Any]:
        value, slope, observed = (getattr(count, name)(y, eta, scale_of(scale), None) for name in ("part", "slope", "observed"))
        t, fall, bend = (-getattr(count, name)(0.0, eta, scale_of(scale), None) for name in ("part", "slope", "observed"))
        with np.errstate(all="ignore"):
            some = t > 1e-280  # -log P(0), which is exp(eta) where it is less
            log, by = np.where(some, np.log(t), eta), np.where(some, fall / t, 1.0)
            bent = np.where(some, -bend / t - by**2, 0.0)
        above, rise, turn = of.log_1m_exp(log)
        return value - above, slope - rise * by, observed + turn * by**2 + rise * bent

    def chosen(which: int) -> Callable[[Any, Any, Any, Any], Any]:
        def of_either(y: Any, eta: Any, scale: Any, trials: Any) -> Any:
            return np.where(y > 0, of_rows(y, eta, scale)[which], logit(scale) if which == 0 else 0.0)

        return of_either

    def zero(mean: Any, scale: Any) -> Any:
        """Returns log P(count = 0)."""
        return count.part(0.0, np.log(mean), scale_of(scale), None)

    def spread(mean: Any, pi: Any, scale: Any) -> Any:
        share = (1 - pi) / -np.expm1(zero(mean, scale))
        return np.asarray(share * (count.spread(mean, scale_of(scale), None) + mean**2) - (share * mean) ** 2)

    def cdf(y: Any, mean: Any, pi: Any, scale: Any) -> Any:
        none = np.exp(zero(mean, scale))
        above = (count.cdf(y, mean, scale_of(scale), None) - none) / -np.expm1(zero(mean, scale))
        return np.where(y >= 0, pi + (1 - pi) * np.maximum(above, 0.0), 0.0)

    def draw(source: Source, mean: Any, pi: Any, scale: Any) -> Any:
        none = np.exp(zero(mean, scale))

        class Above:  # whose uniform numbers are those of counts above 0
            uniform = staticmethod(lambda n: np.minimum(none + (1 - none) * source.uniform(n), of.BELOW_ONE))

        of_count = lambda other: np.maximum(count.draw(Above, mean, scale_of(scale), None), 1.0)  # type: ignore[arg-type]  # noqa: E731
        return of.inflated_draw(source, pi, of_count, len(mean))

    def pi_of(scale: Any) -> Any:
        return expit(logit(scale))

    return {
        "part": chosen(0),
        "normaliser": lambda scale: -softplus(logit(scale)),
        "base": lambda y, scale, trials: count.base(y, scale_of(scale), None),
        "slope": chosen(1),
        "observed": chosen(2),
        "mean": _rate,
        "information": lambda y, eta, scale, trials: count.information(y, eta, scale_of(scale), None),
        "draw": lambda source, mean, scale, trials: draw(source, mean, pi_of(scale), scale),
        "cdf": lambda y, mean, scale, trials: cdf(y, mean, pi_of(scale), scale),
        "spread": lambda mean, scale, trials: spread(mean, pi_of(scale), scale),
    }


HURDLE_POISSON: Family = Family(
    name="hurdle-poisson",
    also=("hurdle", "zero-altered-poisson", "zap"),
    code=None,
    link="log",
    domain=COUNTS,
    methods=("likelihood",),
    level="rate",
    **hurdled(POISSON, lambda scale: 1.0, _logit),
    share=lambda mean, scale: (1 - scale) / -np.expm1(-mean),
    curved=True,
)

HURDLE_NEGATIVE_BINOMIAL: Family = Family(
    name="hurdle-negative-binomial",
    also=("hurdle-nb", "hurdle-negbin", "zanb"),
    code=None,
    link="log",
    domain=COUNTS,
    methods=("likelihood",),
    level="rate",
    **hurdled(NEGATIVE_BINOMIAL, lambda scale: _two(scale)[0], lambda scale: _logit(_two(scale)[1])),
    dispersion=Dispersion("r and the probability of 0", None, ("likelihood",)),
    share=lambda mean, scale: (1 - _two(scale)[1]) / -np.expm1(-_two(scale)[0] * np.log1p(mean / _two(scale)[0])),
    curved=True,
    concave=False,
)

# Counts of rows with effects of their own --------------------

POISSON_LOGNORMAL: Family = Family(
    name="poisson-lognormal",
    also=("poisson-log-normal", "pln", "olre"),
    code=None,
    link="log",
    domain=COUNTS,
    methods=("likelihood",),
    level="rate",
    part=lambda y, eta, scale, trials: by_jets.effects_of_rows(y, eta, scale)[0],
    base=POISSON.base,
    slope=lambda y, eta, scale, trials: by_jets.effects_derivatives(y, eta, scale)[1],
    observed=lambda y, eta, scale, trials: by_jets.effects_derivatives(y, eta, scale)[2],
    mean=_rate,
    information=lambda y, eta, scale, trials: (y + 0.5) / (1 + np.asarray(scale) ** 2 * (y + 0.5)),
    draw=lambda source, mean, scale, trials: _poisson_draw(source, mean * np.exp(scale * source.normal(len(mean))), 1.0, None),
    cdf=by_jets.effects_cdf,
    spread=lambda mean, scale, trials: np.asarray(
        mean * np.exp(0.5 * scale**2) + mean**2 * np.exp(scale**2) * np.expm1(scale**2)
    ),
    share=lambda mean, scale: np.exp(0.5 * np.asarray(scale) ** 2),
    dispersion=Dispersion("the standard deviation of rows' effects", None, ("likelihood",)),
)

# Ordered levels: `mean` is that of the latent number --------------------

ORDINAL = Family(
    name="ordinal",
    also=("ordered", "cumulative", "polr", "clm", "proportional-odds"),
    code=None,
    link="logit",
    domain=LEVELS,
    methods=("likelihood",),
    level="level",
    part=lambda y, eta, scale, trials: ordered.log_between(*ordered.cuts(y, eta, scale)),
    slope=lambda y, eta, scale, trials: ordered.slope(y, eta, scale),
    observed=lambda y, eta, scale, trials: ordered.information(y, eta, scale),
    mean=lambda eta: eta,
    information=lambda y, eta, scale, trials: ordered.information(y, eta, scale),
    draw=lambda source, mean, scale, trials: ordered.level_of(mean + ordered.logistic(source.uniform(len(mean))), scale),
    cdf=lambda y, mean, scale, trials: np.asarray(expit(ordered.cuts(y, mean, scale)[1])),
    spread=lambda mean, scale, trials: np.full_like(mean, np.pi**2 / 3),
)

ORDINAL_PROBIT = Family(  # where a job has model.link = "probit"
    name="ordinal-probit",
    code=None,
    link="probit",
    domain=LEVELS,
    methods=(),
    level="level",
    part=lambda y, eta, scale, trials: ordered.log_normal_between(*ordered.cuts(y, eta, scale)),
    slope=lambda y, eta, scale, trials: ordered.normal_slope(y, eta, scale),
    observed=lambda y, eta, scale, trials: ordered.normal_information(y, eta, scale),
    mean=lambda eta: eta,
    information=lambda y, eta, scale, trials: ordered.normal_information(y, eta, scale),
    draw=lambda source, mean, scale, trials: ordered.level_of(mean + source.normal(len(mean)), scale),
    cdf=lambda y, mean, scale, trials: np.asarray(special("ndtr")(ordered.cuts(y, mean, scale)[1])),
    spread=lambda mean, scale, trials: np.ones_like(mean),
)

# All of them --------------------

RECORDS = (
    POISSON,
    BINOMIAL,
    NEGATIVE_BINOMIAL,
    BERNOULLI,
    GAUSSIAN,
    STUDENT,
    GAMMA,
    BETA,
    ZERO_INFLATED_POISSON,
    ZERO_INFLATED_NEGATIVE_BINOMIAL,
    BETA_BINOMIAL,
    LOGNORMAL,
    INVERSE_GAUSSIAN,
    HURDLE_POISSON,
    HURDLE_NEGATIVE_BINOMIAL,
    POISSON_LOGNORMAL,
    ORDINAL,
    ORDINAL_PROBIT,
    BERNOULLI_PROBIT,
    BINOMIAL_PROBIT,
    BERNOULLI_CLOGLOG,
    BINOMIAL_CLOGLOG,
)
FAMILIES = {record.name: record for record in RECORDS}
MEANT = {other: record.name for record in RECORDS for other in record.also}
# What stands in a family's place where rows have times. "cox" is a likelihood of who is at risk, and no density of a row; the
# others have a baseline hazard that all share. As a column, whether a row has its event is "bernoulli".
# Of accelerated times exp of a coefficient is a ratio of times, and of the others one of hazards.
ACCELERATED = {"lognormal-aft": by_jets.NORMAL, "loglogistic-aft": by_jets.LOGISTIC}
LIFETIMES = ("weibull", "exponential", "piecewise", *ACCELERATED)
HAZARDS = ("cox", *LIFETIMES)
# Of levels without an order: each has a predictor of its own. As a column, such a response is "ordinal".
NOMINAL = ("multinomial",)
LEVELED = ("ordinal", *NOMINAL)
WITHOUT_INTERCEPT = ("cox", "ordinal")  # a baseline hazard of each client, and thresholds, are in its place
MEANT |= {link: f'bernoulli with model.link = "{link}"' for link in CHANCES}
MEANT |= dict.fromkeys(("nominal", "categorical", "softmax", "multinom", "mlogit"), "multinomial")


# link -> eta of a probability
QUANTILES: dict[str, Callable[[Any], Any]] = {
    "logit": lambda p: np.log(p) - np.log1p(-p),
    "probit": lambda p: special("ndtri")(p),
    "cloglog": lambda p: np.log(-np.log1p(-p)),
}


def linked(name: str, link: str | None) -> str:
    """Returns the name of a family's record with this link; None: its own.

    Examples
    --------
    >>> from fedkern.kernels import families
    >>> families.linked("bernoulli", "probit"), families.linked("ordinal", None)
    ('bernoulli-probit', 'ordinal')
    """
    return name if link in (None, "logit") else f"{name}-{link}"


def with_link(link: str) -> tuple[str, ...]:
    """Returns the names of the families of chances and of levels that may have this link.

    Examples
    --------
    >>> from fedkern.kernels import families
    >>> families.with_link("cloglog")
    ('binomial', 'bernoulli')
    """
    named = (f for f in RECORDS if f.methods and (f.chances or f.leveled))
    return tuple(f.name for f in named if FAMILIES.get(linked(f.name, link), f).link == link)


def one_trial(name: str) -> str:
    """Returns the name of the family of one of a row's trials, and of other families their own.

    Examples
    --------
    >>> from fedkern.kernels import families
    >>> families.one_trial("binomial-probit"), families.one_trial("poisson")
    ('bernoulli-probit', 'poisson')
    """
    return f"bernoulli{name.partition('binomial')[2]}" if name in FAMILIES and FAMILIES[name].trials else name


def is_linear(name: str) -> bool:
    """Tells whether sums over rows have the same weights in every round (`Family.linear`). Those of survival times do not.

    Examples
    --------
    >>> from fedkern.kernels import families
    >>> families.is_linear("gaussian"), families.is_linear("bernoulli"), families.is_linear("cox")
    (True, False, False)
    """
    return name in FAMILIES and FAMILIES[name].linear


CODES = {f.name: f.code for f in sorted(RECORDS, key=lambda f: f.code or 0) if f.code is not None}


def numbered(code: int) -> Family:
    """Returns the family that has this number in kernels.

    Raises
    ------
    ValueError

    Examples
    --------
    >>> from fedkern.kernels import families
    >>> families.numbered(1).name
    'poisson'
    """
    if code not in CODES.values():
        raise ValueError(f"family: no likelihood has the number {code}")
    return next(record for record in RECORDS if record.code == code)


def taken_by(method: str, first: str = "", where: Callable[[Family], bool] = lambda family: True) -> tuple[str, ...]:
    """Returns the names of the families that a method takes and for which `where` holds, `first` first.

    Examples
    --------
    >>> from fedkern.kernels import families
    >>> families.taken_by("pvi", "bernoulli")
    ('bernoulli', 'poisson', 'negative-binomial', 'gaussian')
    """
    return tuple(sorted((f.name for f in RECORDS if method in f.methods and where(f)), key=lambda name: name != first))


def quoted(names: tuple[str, ...]) -> str:
    """Returns names in quotes for the text of an error.

    Examples
    --------
    >>> from fedkern.kernels import families
    >>> families.quoted(("poisson", "bernoulli"))
    '"poisson" or "bernoulli"'
    """
    return " or ".join(f'"{name}"' for name in names)


def given_scales(method: str) -> str:
    """Returns a part of a key's help: the families of a method whose dispersion must be given.

    Examples
    --------
    >>> from fedkern.kernels import families
    >>> families.given_scales("pvi")
    '; negative-binomial: r, to be given'
    """
    given = [f for f in RECORDS if method in f.methods and f.dispersion is not None and method not in f.dispersion.learnt_by]
    return "".join(f"; {f.name}: {f.dispersion.words}, to be given" for f in given if f.dispersion is not None)


if TYPE_CHECKING:
    OfPvi: TypeAlias = str
    OfSparse: TypeAlias = str
    OfVertical: TypeAlias = str
    OfSigma: TypeAlias = str
    OfLikelihood: TypeAlias = str
else:  # the values of `model.family`, each method's default first
    OfPvi = Literal[taken_by("pvi", "bernoulli")]
    OfSparse = Literal[taken_by("sparse", "gaussian")]
    OfVertical = Literal[taken_by("vertical", "bernoulli")]
    OfSigma = Literal[taken_by("sigma", "poisson")]
    OfLikelihood = Literal[(*taken_by("likelihood", "bernoulli"), *NOMINAL, *HAZARDS)]
