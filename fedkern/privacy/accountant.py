"""Computes the budget that a mechanism spends. One object chooses the rows, adds the noise and is the accounting event, so that
the three cannot disagree.

Specification: docs/spec/pvi.md, section 6. Epsilon is computed by dp-accounting (`pip install fedkern[dp]`).
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from fedkern.errors import JobError

from ..plain import Record
from .moments import rdp_epsilon
from .noise import GRID, SecureSource, Source
from .search import largest_count, smallest_number

LOG = logging.getLogger(__name__)

Sampling = Literal["poisson", "poisson-truncated", "without-replacement", "full", "shards", "aligned", "counts"]
Accountant = Literal["pld", "rdp"]
Unit = Literal["example", "client", "case"]
Relation = Literal["ADD_OR_REMOVE_ONE", "REPLACE_ONE"]

COIN_VALUES = 1 << 32  # a coin compares one 32-bit word with rate x 2^32
LARGEST_EPSILON = 100.0  # beyond it there is no protection to speak of, and "pld" says infinite
UNLIMITED = 2**53  # steps, where epsilon may be infinite
LEAST_NOISE, MOST_NOISE = 2.0**-10, 2047.0  # the range of the exact sampler, on the grid
LEAST_CLIP = 1e-3  # of rows: squares of numbers that a huge residual lifts up to a smaller clip are no longer exact in float64

# What each scheme must be told. Poisson sampling knows no number of rows: under add-or-remove it is private.
_NEEDS: dict[str, frozenset[str]] = {
    "poisson": frozenset({"sampling_rate"}),
    "poisson-truncated": frozenset({"sampling_rate", "max_batch", "dataset_size"}),
    "without-replacement": frozenset({"batch_size", "dataset_size"}),
    "full": frozenset(),
    "shards": frozenset(),
    "aligned": frozenset({"dataset_size"}),
    "counts": frozenset(),
}
# The accountants that know each scheme, the default first.
_ACCOUNTANTS: dict[str, tuple[Accountant, ...]] = {
    "poisson": ("pld", "rdp"),
    "poisson-truncated": ("pld",),
    "without-replacement": ("rdp",),
    "full": ("pld", "rdp"),
    "shards": ("pld", "rdp"),
    "aligned": ("pld", "rdp"),
    "counts": ("pld",),
}


@dataclass(frozen=True, kw_only=True)
class Mechanism:
    """Describes a noisy clipped sum, or a noisy table of counts: which rows, how much noise, and how much one such step spends.

    Attributes
    ----------
    sampling : "poisson" (each row by its own secret coin), "poisson-truncated" (at most `max_batch` of them),
        "without-replacement" (a fresh subset of `batch_size` at each step), "full" (every row), "shards" (disjoint groups of
        rows by a hash of their ids, one clipped vector each), "aligned" (every row, of public ids), "counts" (a table of counts;
        its noise is two-sided geometric, that of all others Gaussian)
    noise_multiplier : standard deviation of the noise over `clip`; None until `calibrate` has found it
    clip : Euclidean bound of each example's, shard's or client's vector; of counts how many cases neighbours may differ by
    dimension : how many numbers get noise at each step; the price of noise on integers is proportional to it
    sampling_rate : probability of a row's coin. Rounded up to a multiple of 2^-32, in the draw and in the accounts alike
    batch_size, max_batch, dataset_size : see `sampling`; a given `dataset_size` is public
    unit : whose presence is hidden, one "example", one "client" with all its data, or one "case" (`clip` cases) of a count
    accountant : "pld" or "rdp"; None takes the tightest that knows the sampling
    secure : whether the noise cannot be predicted. Where it can (keyed noise, for experiments), epsilon is infinite

    Examples
    --------
    >>> from fedkern.privacy.accountant import Mechanism
    >>> mechanism = Mechanism(sampling="poisson", sampling_rate=0.1, clip=1.0, dimension=4, noise_multiplier=2.0)
    >>> mechanism.neighbours
    'add or remove one example'
    >>> round(mechanism.rate, 6), mechanism.sensitivity_factor
    (0.1, 1.0)
    >>> round(mechanism.epsilon(steps=100, delta=1e-5), 1)
    2.3
    """

    sampling: Sampling
    clip: float
    dimension: int
    noise_multiplier: float | None = None
    sampling_rate: float | None = None
    batch_size: int | None = None
    max_batch: int | None = None
    dataset_size: int | None = None
    unit: Unit = "example"
    accountant: Accountant | None = None
    secure: bool = True

    def __post_init__(self) -> None:
        def refuse(what: str, wanted: str, came: float | str | None) -> None:
            raise ValueError(f"privacy: {what} must be {wanted}, got {came!r}")

        if self.sampling not in _NEEDS:
            refuse("sampling", "one of " + ", ".join(_NEEDS), self.sampling)
        # A number that the scheme does not use is refused too: the accounts would silently ignore it.
        for name in ("sampling_rate", "batch_size", "max_batch", "dataset_size"):
            value, needed = getattr(self, name), name in _NEEDS[self.sampling]
            if needed != (value is not None):
                refuse(name, f"{'given' if needed else 'absent'} with sampling = {self.sampling!r}", value)
            if needed and name != "sampling_rate" and not (isinstance(value, int) and value > 0):
                refuse(name, "a positive integer", value)
        if self.sampling_rate is not None and not 0 < self.sampling_rate <= 1:
            refuse("sampling_rate", "in (0, 1]", self.sampling_rate)
        if self.batch_size is not None and self.dataset_size is not None and self.batch_size > self.dataset_size:
            refuse("batch_size", f"at most dataset_size = {self.dataset_size}", self.batch_size)
        # Beyond this range the exact sampler cannot draw the noise.
        if self.noise_multiplier is not None and not LEAST_NOISE <= self.noise_multiplier <= MOST_NOISE:
            refuse("noise_multiplier", f"in [2^-10, {MOST_NOISE:g}]", self.noise_multiplier)
        if not 0 < self.clip < math.inf:
            refuse("clip", "positive and finite", self.clip)
        if not (isinstance(self.dimension, int) and self.dimension >= 0):
            refuse("dimension", "a non-negative integer", self.dimension)
        if self.unit not in ("example", "client", "case"):
            refuse("unit", "'example', 'client' or 'case'", self.unit)
        if (self.unit == "case") != (self.sampling == "counts"):
            refuse("unit", "'case' with sampling = 'counts', and with no other", self.unit)
        # Counts change by whole cases, and their noise needs a decay of at least one unit of the grid.
        if self.sampling == "counts":
            if self.clip != int(self.clip) or self.clip < 1:
                refuse("clip", "a number of cases, 1 or more, with sampling = 'counts'", self.clip)
            if self.noise_multiplier is not None and self.decay < 1:
                refuse("noise_multiplier", "smaller for so many cases", self.noise_multiplier)
        # By default the first accountant that knows the scheme; one that does not would price another scheme.
        if self.accountant is None:
            object.__setattr__(self, "accountant", _ACCOUNTANTS[self.sampling][0])
        elif self.accountant not in _ACCOUNTANTS[self.sampling]:
            refuse("accountant", f"{' or '.join(_ACCOUNTANTS[self.sampling])} with sampling = {self.sampling!r}", self.accountant)

    # ---- the sampler

    @property
    def threshold(self) -> int:
        """The number below which a row's 32-bit word must be for the row to be taken."""
        return math.ceil((self.sampling_rate or 1.0) * COIN_VALUES)

    @property
    def rate(self) -> float:
        """The probability with which each row is really taken."""
        if self.sampling == "without-replacement":
            assert self.batch_size is not None
            assert self.dataset_size is not None
            return self.batch_size / self.dataset_size
        return self.threshold / COIN_VALUES

    @property
    def inverse_rate(self) -> float:
        """The factor 1 / rate, which makes the noisy sum of a batch an estimate of the sum over all rows. It is never a function
        of private sizes."""
        return 1 / self.rate

    @property
    def grid(self) -> float:
        """The number to whose multiples clipped vectors are rounded, toward zero."""
        return self.clip * GRID

    @property
    def sigma(self) -> float:
        """The noise multiplier, once it is known."""
        if self.noise_multiplier is None:
            raise ValueError("privacy: noise_multiplier is not known yet; give it, or call calibrate")
        return self.noise_multiplier

    @property
    def decay(self) -> int:
        """The decay of the noise on counts: P(noise = k) is proportional to exp(-|k| decay / 2^20). It is rounded down, toward
        more noise."""
        return int(2 * math.asinh(1 / (math.sqrt(2) * self.sigma * self.clip)) / GRID)

    def draw(self, source: Source, n_rows: int, step: int) -> NDArray[np.int64]:
        """Returns the rows of one step, in increasing order.

        Parameters
        ----------
        source : where secret coins come from
        n_rows : how many rows there are (clients, for unit "client"); must be `dataset_size` where that is declared
        step : the party's count of local steps; a secure source ignores it
        """
        self._check(source)
        if self.dataset_size is not None and n_rows != self.dataset_size:
            raise ValueError(f"privacy: dataset_size = {self.dataset_size} is accounted for, but there are {n_rows} rows")
        if self.sampling == "without-replacement":
            assert self.batch_size is not None
            return source.subset(n_rows, self.batch_size, step)
        if self.sampling in ("full", "shards", "aligned"):
            return np.arange(n_rows)
        rows = source.coins(n_rows, self.threshold, step)
        if self.max_batch is not None and len(rows) > self.max_batch:
            return rows[source.subset(len(rows), self.max_batch, step)]
        return rows

    def release(self, source: Source, total: NDArray[np.int64], step: int) -> NDArray[np.float64]:
        """Returns the sum that may leave: (total + noise) x grid.

        Parameters
        ----------
        total : (dimension,) int64 array
            The clipped sum in multiples of `grid`.

        Returns
        -------
        (dimension,) float64 array
            In the units of `clip`; standard deviation of the noise `noise_multiplier` x `clip`.
        """
        # Before any number is drawn: keyed noise must not pass for secure noise.
        self._check(source)
        if total.shape != (self.dimension,):
            raise ValueError(f"privacy: total must have shape ({self.dimension},), which is accounted for, got {total.shape}")
        noisy = source.add_noise(total, self.sigma, step)
        noisy *= self.grid
        return noisy

    def count(self, source: SecureSource, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns the table that may leave: counts (dimension,) with exact two-sided geometric noise."""
        if self.sampling != "counts":
            raise ValueError(f"privacy: counts have sampling = 'counts', not {self.sampling!r}")
        if counts.shape != (self.dimension,):
            raise ValueError(f"privacy: counts must have shape ({self.dimension},), which is accounted for, got {counts.shape}")
        self._check(source)
        return source.add_geometric(counts, self.decay)

    def _check(self, source: Source) -> None:
        if self.secure and not source.secure:
            raise ValueError("privacy: a secure mechanism got a keyed source; declare secure=False (its epsilon is infinite)")

    # ---- the event

    @property
    def relation(self) -> Relation:
        """The neighbouring relation that the accountant is given, by dp-accounting's name."""
        return "ADD_OR_REMOVE_ONE" if self.sampling in ("poisson", "full", "counts") else "REPLACE_ONE"

    @property
    def neighbours(self) -> str:
        """The data sets that epsilon compares, in words; see `neighbours_of`."""
        return neighbours_of([self])

    @property
    def sensitivity_factor(self) -> float:
        """The largest move of the sum between neighbours, in units of `clip`.

        A row that is added moves a sum of rows by 1; one that is replaced by 2; and a shard, whose one row is added, removed or
        changed, answers with another vector, by 2. (A row that is replaced by one with another id may move two shards, together
        by 4: these are no neighbours.)
        """
        return 1.0 if self.sampling in ("poisson", "full", "counts") else 2.0

    def to_dp_event(self, steps: int = 1, relation: Relation | None = None, cases: int = 0) -> Any:
        """Returns dp-accounting's `DpEvent` of a number of steps, for its accountant `accountant` under `relation` (by default
        the mechanism's), and where a person has up to `cases` cases (by default as many as the mechanism is for). That gives
        `nominal_epsilon` but for `price_of_integers`.

        Trap: RdpAccountant takes the multiplier as noise over *sensitivity* under either relation, so replacing one (sensitivity
        2 clip) needs sigma / 2; PLDAccountant doubles the sensitivity by itself, and needs sigma.
        """
        import dp_accounting as dp

        if self.sampling == "counts":
            most = max(cases, int(self.clip))  # sensitivity in the sum of changes
            counted = dp.dp_event.DiscreteLaplaceDpEvent(self.decay * GRID, most)
            return dp.SelfComposedDpEvent(counted, steps)
        halved = (relation or self.relation) == "REPLACE_ONE" and self.accountant == "rdp"
        gaussian = dp.GaussianDpEvent(self.sigma / 2 if halved else self.sigma)
        if self.sampling == "poisson":
            event: object = dp.PoissonSampledDpEvent(self.rate, gaussian)
        elif self.sampling == "poisson-truncated":
            event = dp.TruncatedSubsampledGaussianDpEvent(self.dataset_size, self.rate, self.max_batch, self.sigma)
        elif self.sampling == "without-replacement":
            event = dp.SampledWithoutReplacementDpEvent(self.dataset_size, self.batch_size, gaussian)
        else:
            event = gaussian
        return dp.SelfComposedDpEvent(event, steps)

    # ---- the price

    def epsilon(self, steps: int, delta: float) -> float:
        """Returns the epsilon of `steps` steps at `delta`; infinite if the noise can be predicted."""
        return self.nominal_epsilon(steps, delta) if self.secure else math.inf

    def nominal_epsilon(self, steps: int, delta: float) -> float:
        """Returns the epsilon as if the noise came from a secure source: an experiment with keyed noise stops where the real one
        would."""
        return nominal_epsilon(((self, steps),), delta)

    def max_steps(self, epsilon: float, delta: float, *, enough: int | None = None) -> int:
        """Returns the largest number of steps whose (nominal) epsilon at `delta` is at most `epsilon`: refusals then compare
        integers."""
        return max_steps(self, epsilon, delta, enough=enough)

    def as_dict(self) -> dict[str, str | float | None]:
        """Returns the public parameters, for a ledger."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    @staticmethod
    def from_dict(parameters: Record) -> Mechanism:
        """Returns the mechanism that `as_dict` described."""
        return Mechanism(**parameters)


Parts = tuple[tuple[Mechanism, int], ...]  # (mechanism, steps) of everything that was done to one data set

# What may be done to one row: "add" it or remove it, "replace" it by any other, or replace its "values" under the same id. Where
# the number of rows is public none can be added; where ids choose the shard a row with another id is no neighbour. A plain sum of
# rows knows all three, but its own account is about the first.
_CHANGES: dict[str, frozenset[str]] = {
    "poisson": frozenset({"add", "replace", "values"}),
    "poisson-truncated": frozenset({"replace", "values"}),
    "without-replacement": frozenset({"replace", "values"}),
    "full": frozenset({"add", "replace", "values"}),
    "shards": frozenset({"add", "values"}),
}


def largest_cases(mechanisms: Iterable[Mechanism]) -> int:
    """Returns how many cases a person may have in tables of one account: the largest number of any of them, for who has so many
    cases has them in every table. 0 where no mechanism counts cases.

    Examples
    --------
    >>> from fedkern.privacy import accountant
    >>> from fedkern.privacy.accountant import Mechanism
    >>> tables = [Mechanism(sampling="counts", clip=cases, dimension=4, unit="case") for cases in (1.0, 3.0)]
    >>> accountant.largest_cases(tables)
    3
    """
    return max((int(m.clip) for m in mechanisms if m.sampling == "counts"), default=0)


def neighbours_of(mechanisms: Iterable[Mechanism]) -> str:
    """Returns in words which data sets the epsilon of all these mechanisms together compares: the changes that each of them
    accounts for.

    Examples
    --------
    >>> from fedkern.privacy import accountant
    >>> from fedkern.privacy.accountant import Mechanism
    >>> mechanism = Mechanism(sampling="poisson", sampling_rate=0.1, clip=1.0, dimension=4, noise_multiplier=2.0)
    >>> accountant.neighbours_of([mechanism])
    'add or remove one example'
    """
    mechanisms = list(mechanisms)
    if any(m.unit == "client" for m in mechanisms):
        return "add or remove one client with all its rows"
    if most := largest_cases(mechanisms):
        return "add or remove one case in one count" if most == 1 else f"add or remove one person with at most {most} cases"
    if all(m.relation == "ADD_OR_REMOVE_ONE" for m in mechanisms):
        return "add or remove one example"
    if any(m.sampling == "aligned" for m in mechanisms):  # ids are public, and the response is not protected
        return "replace the values of one example in the client's own columns, under the same id"
    changes = frozenset.intersection(*(_CHANGES[m.sampling] for m in mechanisms))
    if "add" in changes:
        return "add or remove one example, or replace its values under the same id"
    return "replace one example by any other" if "replace" in changes else "replace the values of one example under the same id"


def epsilon(parts: Parts, delta: float) -> float:
    """Returns the epsilon at `delta` of all that was done to one data set; infinite if any noise could be predicted.

    Examples
    --------
    >>> from fedkern.privacy import accountant
    >>> from fedkern.privacy.accountant import Mechanism
    >>> mechanism = Mechanism(sampling="poisson", sampling_rate=0.1, clip=1.0, dimension=4, noise_multiplier=2.0)
    >>> round(accountant.epsilon(((mechanism, 100),), delta=1e-5), 1)
    2.3
    """
    return nominal_epsilon(parts, delta) if all(m.secure for m, steps in parts if steps) else math.inf


def nominal_epsilon(parts: Parts, delta: float) -> float:
    """Returns the `epsilon` as if all noise were secure.

    Adaptive composition in one accountant where one knows all the parts. Otherwise each accountant gets an equal share of
    delta and the epsilons are added; add-or-remove parts beside replace-one parts are composed under replace-one, and tables of
    counts at the largest number of cases that any of them is for.

    Examples
    --------
    >>> from fedkern.privacy import accountant
    >>> from fedkern.privacy.accountant import Mechanism
    >>> keyed = Mechanism(sampling="full", clip=1.0, dimension=4, noise_multiplier=2.0, secure=False)
    >>> round(accountant.nominal_epsilon(((keyed, 1),), delta=1e-5), 1)
    2.0
    >>> accountant.epsilon(((keyed, 1),), delta=1e-5)  # whoever knows the key can take the noise off
    inf
    """
    never = delta == 0 and all(m.sampling == "counts" for m, _ in parts)  # their losses have a largest
    if not (0 < delta < 1 or never):
        raise ValueError(f"privacy: delta must be in (0, 1), got {delta}")
    together = gather(parts)
    return _composed(together, delta) if together else 0.0


def gather(parts: Parts) -> Parts:
    """Returns each mechanism once, with all its steps; those without a step are left out. Raises ValueError: the mechanisms
    protect different units: no two data sets are neighbours for all of them."""
    units = [unit for unit in get_args(Unit) if any(m.unit == unit for m, _ in parts)]
    if len(units) > 1:
        raise ValueError(f"privacy: one data set cannot have charges by {' and by '.join(units)} in one account")
    steps_of: dict[Mechanism, int] = {}
    for mechanism, steps in parts:
        if steps:
            steps_of[mechanism] = steps_of.get(mechanism, 0) + steps
    return tuple(steps_of.items())


@lru_cache(maxsize=4096)
def _composed(parts: Parts, delta: float) -> float:
    cases = largest_cases(m for m, _ in parts)
    if any(m.accountant == "pld" and _about(m, steps, delta, cases) > LARGEST_EPSILON for m, steps in parts):
        return math.inf
    with _logged_here():
        return _by_dp_accounting(parts, delta, cases)


def _by_dp_accounting(parts: Parts, delta: float, cases: int) -> float:
    relation: Relation = "REPLACE_ONE" if any(m.relation == "REPLACE_ONE" for m, _ in parts) else "ADD_OR_REMOVE_ONE"
    groups: dict[Accountant, Any] = {}
    for mechanism, steps in parts:
        # The RDP accountant knows Poisson sampling under add-or-remove only.
        kind: Accountant = "rdp" if mechanism.accountant == "rdp" and mechanism.relation == relation else "pld"
        if kind not in groups:
            groups[kind] = _accountant(kind, relation)
        groups[kind].compose(replace(mechanism, accountant=kind).to_dp_event(steps, relation, cases))

    # The accountants know the continuous Gaussian; see `price_of_integers`.
    more, kept = price_of_integers(tuple(part for part in parts if part[0].sampling != "counts"), delta)
    if delta == 0:
        return float(sum(a.get_epsilon(0.0) for a in groups.values()))
    return more + float(sum(a.get_epsilon(kept / len(groups)) for a in groups.values())) if kept > 0 else math.inf


def price_of_integers(parts: Parts, delta: float) -> tuple[float, float]:
    """Returns the addition to epsilon, and the rest of delta, because the noise is a discrete Gaussian and not a continuous one.

    Integers plus a rounded continuous Gaussian would be post-processing of the Gaussian mechanism. Let r and p be the
    probabilities of the rounded and of the discrete Gaussian of parameter s at distance k from the centre. With u uniform on
    (-1/2, 1/2), r / p = E exp(-(2 k u + u^2) / (2 s^2)), so that (Jensen; sinh(x) / x <= exp(x^2 / 6))

        -1 / (24 s^2) <= log(r / p) <= k^2 / (24 s^4) .

    Over n numbers p is at most exp(a) r, a = n / (24 s^2), and, but for |k| > 20 s, r is at most exp(400 a) p. Hence epsilon
    grows by 401 a, and delta by the factor exp(a) and by the probability beyond 20 standard deviations, which is less than
    n 1e-44 for any epsilon up to LARGEST_EPSILON. (This is tighter than the total variation times 1 + exp(epsilon), which is
    useless beyond epsilon = 8.)

    Examples
    --------
    >>> from fedkern.privacy import accountant
    >>> from fedkern.privacy.accountant import Mechanism
    >>> mechanism = Mechanism(sampling="poisson", sampling_rate=0.1, clip=1.0, dimension=4, noise_multiplier=2.0)
    >>> more, kept = accountant.price_of_integers(((mechanism, 100),), delta=1e-5)
    >>> more < 1e-6, kept < 1e-5
    (True, True)
    """
    a = sum(m.dimension * steps / (24 * math.ceil(m.sigma / GRID) ** 2) for m, steps in parts)
    numbers = sum(m.dimension * steps for m, steps in parts)
    return 401 * a, delta * math.exp(-a) - numbers * 1e-44


@contextmanager
def _logged_here() -> Iterator[None]:
    """Sends the messages that dp-accounting logs meanwhile into this package's log, and not to the terminal.

    It says which orders' bounds did not converge, which are left out, and where rounding has made a loss of 0 negative: epsilon
    is an upper bound all the same.
    """
    with suppress(ImportError):
        import dp_accounting  # noqa: F401 (its package for logging makes a logger of its own kind, if there is none of that name)
    here = threading.get_ident()

    def told_elsewhere(record: logging.LogRecord) -> bool:
        if record.thread != here:
            return True
        LOG.debug("dp-accounting: %s", record.getMessage())
        return False

    log = logging.getLogger("absl")
    log.addFilter(told_elsewhere)
    try:
        with np.errstate(all="ignore"):
            yield
    finally:
        log.removeFilter(told_elsewhere)


def _accountant(kind: Accountant, relation: Relation) -> object:
    try:
        import dp_accounting as dp
        from dp_accounting import pld, rdp
    except ImportError as fault:
        raise JobError(f"privacy: epsilon needs dp-accounting ({fault}): pip install 'fedkern[dp]'") from None
    neighbours = dp.NeighboringRelation[relation]
    return pld.PLDAccountant(neighbours) if kind == "pld" else rdp.RdpAccountant(neighboring_relation=neighbours)


def _about(mechanism: Mechanism, steps: int, delta: float, cases: int = 0) -> float:
    """Estimates epsilon at no cost. (Tables of privacy losses grow with epsilon, until the memory is full.)"""
    if mechanism.sampling == "counts":
        return steps * max(cases, mechanism.clip) * mechanism.decay * GRID
    renyi = rdp_epsilon(mechanism.rate, mechanism.sigma / mechanism.sensitivity_factor, steps, delta, largest=64)
    mu = math.sqrt(steps * _squared_mu(mechanism))
    return min(renyi, mu * mu / 2 + mu * math.sqrt(-2 * math.log(delta)))


def _squared_mu(mechanism: Mechanism) -> float:
    """Returns mu^2 of one step: T steps are nearly Gaussian of mu^2 = T q^2 (exp(1/sigma^2) - 1) (Dong, Roth and Su 2022)."""
    if mechanism.sampling == "counts":
        return (mechanism.clip * mechanism.decay * GRID) ** 2
    precision = (mechanism.sensitivity_factor / mechanism.sigma) ** 2
    return precision if mechanism.rate == 1 else min(precision, mechanism.rate**2 * math.expm1(min(precision, 700)))


@lru_cache(maxsize=256)
def max_steps(mechanism: Mechanism, epsilon: float, delta: float, earlier: Parts = (), *, enough: int | None = None) -> int:
    """Returns the largest number of steps that keeps (nominal) epsilon, with everything `earlier`, within `epsilon` at `delta`.

    `enough` is the answer if that many are within: to look far beyond a job's need takes minutes where the cap is large.

    Examples
    --------
    >>> from fedkern.privacy import accountant
    >>> from fedkern.privacy.accountant import Mechanism
    >>> mechanism = Mechanism(sampling="poisson", sampling_rate=0.1, clip=1.0, dimension=4, noise_multiplier=2.0)
    >>> steps = accountant.max_steps(mechanism, epsilon=2.0, delta=1e-5)
    >>> mechanism.epsilon(steps, 1e-5) <= 2.0 < mechanism.epsilon(steps + 1, 1e-5)
    True
    """
    if not epsilon > 0:
        raise ValueError(f"privacy: epsilon must be > 0, got {epsilon}")
    if epsilon == math.inf:
        return UNLIMITED
    if earlier and nominal_epsilon(earlier, delta) > epsilon:
        return 0

    def spent(steps: int) -> float:
        return nominal_epsilon((*earlier, (mechanism, steps)), delta)

    if enough and spent(enough) <= epsilon:
        return enough
    squared_mu = _central_limit(epsilon, delta) - sum(steps * _squared_mu(m) for m, steps in earlier)
    return largest_count(spent, epsilon, squared_mu / _squared_mu(mechanism))


def _central_limit(epsilon: float, delta: float) -> float:
    """Returns mu^2 of the Gaussian mechanism with this epsilon and delta, for first guesses."""

    def cdf(z: float) -> float:
        return math.erfc(-z / math.sqrt(2)) / 2

    def delta_of(mu: float) -> float:
        return cdf(mu / 2 - epsilon / mu) - math.exp(min(epsilon, 700)) * cdf(-mu / 2 - epsilon / mu)

    low, high = 1e-9, 100.0
    for _ in range(60):
        mu = math.sqrt(low * high)
        low, high = (mu, high) if delta_of(mu) <= delta else (low, mu)
    return low * low


def calibrate(mechanism: Mechanism, epsilon: float, delta: float, steps: int) -> float:
    """Returns the smallest noise multiplier (to 1e-6 relative) for which `steps` steps spend at most `epsilon` at `delta`.

    The mechanism's own multiplier, if it has one, is ignored.

    Examples
    --------
    >>> from fedkern.privacy import accountant
    >>> from fedkern.privacy.accountant import Mechanism
    >>> mechanism = Mechanism(sampling="poisson", sampling_rate=0.1, clip=1.0, dimension=4, noise_multiplier=2.0)
    >>> round(accountant.calibrate(mechanism, epsilon=2.0, delta=1e-5, steps=100), 2)
    2.25
    """
    if not (epsilon > 0 and steps > 0):
        raise ValueError(f"privacy: epsilon and steps must be > 0, got {epsilon} and {steps}")

    def with_noise(sigma: float) -> Mechanism:
        return replace(mechanism, noise_multiplier=sigma)

    low, high = LEAST_NOISE, MOST_NOISE
    while high > 1.01 * low:
        guess = math.sqrt(low * high)
        low, high = (guess, high) if _about(with_noise(guess), steps, delta) > epsilon else (low, guess)

    def spent(sigma: float) -> float:
        return nominal_epsilon(((with_noise(sigma), steps),), delta)

    return smallest_number(spent, epsilon, high, lowest=LEAST_NOISE, highest=MOST_NOISE)
