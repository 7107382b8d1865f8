"""A client's log-likelihood that its holder's own installed package computes: what it must have, and what is checked of it.

Whatever goes wrong in it is told to other parties by the client, the factory, what was asked, and the type of the exception; what
it says may quote a cell, and is for the holder alone. Source: docs/how-to/own-model.md.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from typing import Protocol, cast

import numpy as np
from numpy.typing import NDArray

from ...errors import JobError, OwnFault
from . import differences
from .priors import Priors

Array = NDArray[np.float64]
Indices = NDArray[np.int64]
Apart = Callable[[], AbstractContextManager[None]]

# Of values that are asked twice; of derivatives beside differences; of values, by which differences may be off
SAME, ALIKE, ROUNDED = 1e-9, 0.05, 1e-5
LOST_PART, FEWEST = 0.01, 100  # of the points of a question of at least so many, that may have no number


class _Nowhere:
    """In the place of a stream."""

    def write(self, text: str) -> int:
        return len(text)

    def flush(self) -> None:
        pass

    def isatty(self) -> bool:
        return False


@contextmanager
def silent() -> Iterator[None]:
    """What a package prints goes nowhere: it could be rows, and a launcher shows what ranks print to whoever started the job."""
    with redirect_stdout(_Nowhere()), redirect_stderr(_Nowhere()):
        yield


def _apart(found: Array, near: Array, size: float) -> bool:
    """Whether derivatives are others than differences say, of values of this size."""
    largest = max(float(np.abs(found).max(initial=0)), float(np.abs(near).max(initial=0)))
    return bool(np.isfinite([found, near]).all() and np.abs(found - near).max(initial=0) > ALIKE * largest + ROUNDED * size)


class Supplied(Protocol):
    """What a factory gives back. Only `names` and `values` must be there, or of a model with local unknowns `log_joint_grad`.

    Other attributes that are looked for: `gradient(points)` (n, P); `curvature(points)` (n, P, P), minus the Hessians;
    `log_prior(points)` (n,), where the job has no [model.priors], its `log_prior_gradient(points)` (n, P), `natural(points)`
    (n, P), what is published of them, and `starts` (k, P), where the mode is looked for; `unconstrained`, whether points are
    coordinates where the job has priors, and `constrain(point)` (P,), which then must agree with the priors' own; `local_size`,
    the number of local unknowns, and `log_joint_grads`, which is `log_joint_grad` of all chains at once.

    Attributes
    ----------
    names : (P,) of the parameters
    """

    @property
    def names(self) -> tuple[str, ...]: ...

    def values(self, points: Array) -> Array:
        """(n,) Log-likelihoods of the client's rows at points (n, P); minus infinity where there is no density."""

    def log_joint_grad(self, xi: Array, u: Array) -> tuple[float, Array, Array]:
        """log p(rows, u | xi), and its gradients in xi (P,) and in the client's own unknowns u (local_size,)."""


@dataclass(frozen=True)
class Own:
    """A client's model, in the coordinates xi.

    Attributes
    ----------
    supplied : of the holder's package
    who : how a sentence of it begins, "client 'a': the model of factory \"schools:model\""
    order : (P,) which parameter of the job each of its names is
    priors : of the job; None where the model has a prior of its own
    apart : in which its code runs
    looked_at : whether its answers were held against each other, which the first question does
    """

    supplied: Supplied
    who: str
    order: Indices
    priors: Priors | None = None
    apart: Apart = nullcontext
    looked_at: list[bool] = field(default_factory=list)

    @classmethod
    def of(
        cls,
        supplied: object,
        who: str,
        names: tuple[str, ...],
        priors: Priors | None,
        *,
        local: bool,
        apart: Apart = nullcontext,
    ) -> Own:
        """A model that has the parameters of the job, in whatever order.

        Raises
        ------
        JobError
            It has others, or lacks what is asked of it.
        """
        wanted = "log_joint_grad" if local else "values"
        own = tuple(map(str, named)) if isinstance(named := getattr(supplied, "names", None), tuple | list) else None
        if own is None or not callable(getattr(supplied, wanted, None)):
            lacks = "names, a list of its parameters," if own is None else f"method {wanted}"
            raise JobError(f"{who} has no {lacks}: give it one, as docs/how-to/own-model.md says")
        if sorted(own) != sorted(names) or len(set(own)) < len(own):
            origin = "the model of the server" if priors is None else "[model.priors]"
            more = [f"it has {', '.join(map(repr, extra))} beside" for extra in [[n for n in own if n not in names]] if extra]
            more += [f"it lacks {', '.join(map(repr, lacks))} of" for lacks in [[n for n in names if n not in own]] if lacks]
            said = " and ".join(more) or "a name comes twice among"
            raise JobError(f"{who}: {said} the parameters of {origin}; name the same ones in both")
        if priors is not None and callable(getattr(supplied, "log_prior", None)):
            raise JobError(f"{who} has a prior of its own (log_prior), and the job has [model.priors]; remove one of them")
        size = getattr(supplied, "local_size", 0)
        if isinstance(size, bool) or not isinstance(size, int | np.integer) or size < 0:
            raise JobError(f"{who}: local_size must be a whole number of at least 0")
        if size and not local:
            raise JobError(
                f"{who} has unknowns of each client (local_size): it needs model.local = true and algorithm.sampler = "
                '"hmc", or values with these integrated out'
            )
        if local and not size:
            raise JobError(f"{who} has no unknowns of its client (local_size), and model.local = true; remove that key")
        found = cls(cast(Supplied, supplied), who, np.array([names.index(name) for name in own], np.int64), priors, apart)
        found._constrains_alike()
        return found

    @property
    def size(self) -> int:
        """P."""
        return len(self.order)

    @property
    def local_size(self) -> int:
        """The number of the client's own unknowns."""
        return int(getattr(self.supplied, "local_size", 0))

    @property
    def _in_coordinates(self) -> bool:
        """Whether the model takes coordinates, and not parameters."""
        return self.priors is None or self.priors.plain or bool(getattr(self.supplied, "unconstrained", False))

    def values(self, points: Array, nodes: int = 1) -> Array:
        """(n,) At points (n, P); NaN where it is no number. `nodes`: of a quadrature that it has not."""
        taken = self.taken(points)
        found = self.answer("values", taken, (len(points),))
        found[found == np.inf] = np.nan
        lost = np.isnan(found).mean() if len(found) >= FEWEST else 0.0
        if lost > LOST_PART:
            text = f"{self.who}: values are no numbers at more than {100 * LOST_PART:g} % of the points"
            remedy = "return minus infinity where there is no density, and compute in float64"
            first = dict(zip(self.supplied.names, taken[np.isnan(found)][0].tolist()))
            raise OwnFault(f"{text}; {remedy}", f"{text} ({100 * lost:.1f} %, first at {first}); {remedy}")
        return found

    def gradients(self, points: Array) -> tuple[Array, Array]:
        """(c,) Values at points (c, P), and gradients (c, P)."""
        if not self.has("gradient"):
            return differences.gradient(self.values, points)
        return self.values(points), self._gradient(points)

    def curvature(self, points: Array, nodes: int = 1) -> tuple[Array, Array, Array]:
        """(c,) Values, gradients (c, P), and minus Hessians (c, P, P): the model's own, or by differences."""
        found = self._curvature(points)
        if not self.looked_at:
            self.looked_at.append(True)
            self._agrees(points[:1], *(one[:1] for one in found))
        return found

    def _agrees(self, point: Array, value: Array, gradient: Array, curved: Array) -> None:
        """Whether values are the same when they are asked twice, and derivatives are those of the values.

        Raises
        ------
        OwnFault
            They are not: no search would find a mode, and no word of it would say why.
        """
        again = self.values(point)
        if not np.isfinite([*value, *again]).all():
            return
        size = 1 + abs(float(value[0]))
        if abs(float(value[0] - again[0])) > SAME * size:
            raise self._inconsistent(
                "values are not the same when they are asked twice", "make it a function of the points alone"
            )
        if self.has("gradient"):
            near = differences.gradient(self.values, point)[1]
            if _apart(gradient, near, size):
                raise self._inconsistent("gradient is not that of values", "return the derivatives of values(points)")
        if self.has("gradient") and self.has("curvature"):
            near = differences.of_gradients(self.values, self._gradient, point)[2]
            if _apart(curved, near, size):
                raise self._inconsistent("curvature is not that of gradient", "return minus the second derivatives")

    def _inconsistent(self, what: str, remedy: str) -> OwnFault:
        text = f"{self.who}: {what}: {remedy}, and install the same version at every holder"
        return OwnFault(text, text)

    def _curvature(self, points: Array) -> tuple[Array, Array, Array]:
        P = self.size
        if not self.has("gradient"):
            return differences.curvature(self.values, points)
        if not self.has("curvature"):
            return differences.of_gradients(self.values, self._gradient, points)
        taken, value = self.taken(points), self.values(points)
        gradient = self.answer("gradient", taken, (len(points), P))
        curved = self.answer("curvature", taken, (len(points), P, P))
        back = np.argsort(self.order)
        gradient, curved = gradient[:, back], curved[:, back][:, :, back]
        if self._in_coordinates:
            return value, gradient, curved
        assert self.priors is not None
        return value, *self.priors.in_coordinates(points, gradient, curved)

    def rule(self, points: Array, nodes: int) -> Array:
        """(n,) zeros: what is integrated out is the model's own affair."""
        return np.zeros(len(points))

    def joint(self, xi: Array, u: Array) -> tuple[float, Array, Array]:
        """log p(rows, u | xi) at one point, and its gradients in xi (P,) and u."""
        taken = self.taken(xi[np.newaxis])[0]
        answer = self._asked("log_joint_grad", lambda: self.supplied.log_joint_grad(taken, u))
        value, slope, own = self._three("log_joint_grad", answer, ((), (self.size,), (self.local_size,)))
        return float(value), self._back(xi[np.newaxis], slope[np.newaxis])[0], own

    def joints(self, xi: Array, u: Array) -> tuple[Array, Array, Array]:
        """The same of all chains: (c,) values at (c, P) and (c, local_size), and both gradients."""
        if not self.has("log_joint_grads"):
            points, joint = self.taken(xi), self.supplied.log_joint_grad
            each_answer = cast(list[object], self._asked("log_joint_grad", lambda: [joint(*one) for one in zip(points, u)]))
            shapes: tuple[tuple[int, ...], ...] = ((), (self.size,), (self.local_size,))
            each = [self._three("log_joint_grad", answer, shapes) for answer in each_answer]
            slopes = self._back(xi, np.array([one[1] for one in each]))
            return np.array([one[0] for one in each]), slopes, np.array([one[2] for one in each])
        taken = self.taken(xi)
        together = cast(Callable[[Array, Array], object], getattr(self.supplied, "log_joint_grads"))  # noqa: B009
        answer = self._asked("log_joint_grads", lambda: together(taken, u))
        value, slope, own = self._three("log_joint_grads", answer, ((len(xi),), xi.shape, u.shape))
        return value, self._back(xi, slope), own

    def _back(self, points: Array, slope: Array) -> Array:
        """(c, P) Gradients as the model has them, in the coordinates."""
        slope = slope[:, np.argsort(self.order)]
        if self._in_coordinates:
            return slope
        assert self.priors is not None
        return self.priors.in_coordinates(points, slope, None)[0]

    def _three(self, what: str, answer: object, shapes: tuple[tuple[int, ...], ...]) -> tuple[Array, Array, Array]:
        if not isinstance(answer, tuple | list) or len(answer) != 3:
            raise self._wrong(what, "three results: values, and their gradients in xi and u", type(answer).__name__)
        value, slope, own = (self._checked(what, part, shape) for part, shape in zip(answer, shapes))
        return value, slope, own

    def _gradient(self, points: Array) -> Array:
        """(n, P) In the coordinates."""
        return self._back(points, self.answer("gradient", self.taken(points), points.shape))

    def taken(self, points: Array) -> Array:
        """(n, P) What the model takes, in the order of its names."""
        with np.errstate(all="ignore"):
            if not self._in_coordinates:
                assert self.priors is not None
                points = np.asarray(self.priors.natural(points), np.float64)
        return np.ascontiguousarray(points[:, self.order])

    def has(self, method: str) -> bool:
        return callable(getattr(self.supplied, method, None))

    def answer(self, what: str, taken: Array, shape: tuple[int, ...]) -> Array:
        """What a method of the model says of points as it takes them.

        Raises
        ------
        OwnFault
            It fails, or returns what is no array of this shape.
        """
        function = cast(Callable[[Array], object], getattr(self.supplied, what))
        return self._checked(what, self._asked(what, lambda: function(taken)), shape)

    def _asked(self, what: str, function: Callable[[], object]) -> object:
        """What the holder's code answers."""
        try:
            with self.apart(), silent(), np.errstate(all="ignore"):
                return function()
        except MemoryError:
            raise
        except (Exception, SystemExit) as error:
            raise raised(f"{self.who}: {what}", error) from None

    def _checked(self, what: str, answer: object, shape: tuple[int, ...]) -> Array:
        try:
            found = np.asarray(answer)
        except (Exception, SystemExit) as error:
            raise raised(f"{self.who}: what {what} returns", error) from None
        if found.dtype != np.float64 or found.shape != shape:
            raise self._wrong(what, f"float64 numbers of the shape {shape}", f"{found.dtype} of the shape {found.shape}")
        return np.array(found)

    def _wrong(self, what: str, wanted: str, came: str) -> OwnFault:
        """Of an answer that cannot be one; what came may tell how many rows there are."""
        text = f"{self.who}: {what} must return {wanted}"
        return OwnFault(f"{text}; mend the package, and install the same version at every holder", f"{text}, and returned {came}")

    def _constrained(self, xi: Array) -> object:
        constrain = cast(Callable[[Array], object], getattr(self.supplied, "constrain"))  # noqa: B009
        return self._asked("constrain", lambda: constrain(xi))

    def _constrains_alike(self) -> None:
        """JobError where a model that takes coordinates makes other parameters of them than the priors do."""
        if self.priors is None or not getattr(self.supplied, "unconstrained", False) or not self.has("constrain"):
            return
        for at in (-0.5, 0.7):
            xi = np.full((1, self.size), at)
            wanted = np.asarray(self.priors.natural(xi), np.float64)[0][self.order]
            made = np.asarray(self._constrained(xi[0]), np.float64)
            if made.shape != wanted.shape:
                raise JobError(
                    f"{self.who}: constrain makes {made.size} parameters of {self.size} coordinates; matrices, simplexes and the "
                    "like have no place here: take parameters of one number each"
                )
            if wrong := [name for name, one, other in zip(self.supplied.names, made, wanted) if abs(one - other) > 1e-8]:
                raise JobError(
                    f"{self.who}: {', '.join(map(repr, wrong))} has another constraint in the model than in [model.priors]: a "
                    "half-normal, half-student or gamma prior is of a parameter with lower = 0, a normal or student one of any"
                )


def raised(what: str, error: Exception | SystemExit) -> OwnFault:
    """What an exception of the holder's code becomes."""
    text = f"{what} failed ({type(error).__name__})"
    remedy = "mend the package, and install the same version at every holder"
    return OwnFault(f"{text}; {remedy}", f"{text}:\n{''.join(traceback.format_exception(error))}")
