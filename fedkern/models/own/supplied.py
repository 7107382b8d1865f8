"""Asks and checks a client's log-likelihood that its holder's own installed package computes.

Other parties are told of a fault by the client, the factory, the question, and the type of the exception. Its message may quote a
cell, and is for the holder alone.

Source: docs/how-to/own-model.md.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from typing import Protocol, cast

import numpy as np

from ...arrays import Array, Indices
from ...errors import JobError, OwnFault
from . import differences
from .priors import Priors

Apart = Callable[[], AbstractContextManager[None]]

# Most difference of values that are asked twice; of derivatives from differences; part of a value by which differences may be off
SAME, ALIKE, ROUNDED = 1e-9, 0.05, 1e-5
LOST_PART, FEWEST = 0.01, 100  # of the points of a question of at least so many, that may have no number


class _Nowhere:
    """Takes the place of a stream, and writes nothing."""

    def write(self, text: str) -> int:
        return len(text)

    def flush(self) -> None:
        pass

    def isatty(self) -> bool:
        return False


@contextmanager
def silent() -> Iterator[None]:
    """Drops the lines that a package prints: they could be rows, and a launcher shows ranks' lines to whoever started the job."""
    with redirect_stdout(_Nowhere()), redirect_stderr(_Nowhere()):
        yield


def _apart(given: Array, near: Array, size: float) -> bool:
    """Whether derivatives are far from those by differences; `size`: of the values."""
    largest = max(float(np.abs(given).max(initial=0)), float(np.abs(near).max(initial=0)))
    return bool(np.isfinite([given, near]).all() and np.abs(given - near).max(initial=0) > ALIKE * largest + ROUNDED * size)


class Supplied(Protocol):
    """Describes the model that a factory makes.

    It must have `names` and `values`; with local unknowns, `names` and `log_joint_grad`.

    It may also have these: `gradient(points)` (n, P); `curvature(points)` (n, P, P), minus the Hessians;
    `log_prior(points)` (n,), where the job has no [model.priors], its `log_prior_gradient(points)` (n, P), `natural(points)`
    (n, P), the published numbers, and `starts` (k, P), where the mode is looked for; `unconstrained`, whether points are
    coordinates where the job has priors, and `constrain(point)` (P,), which then must agree with the priors' own; `local_size`,
    the number of local unknowns, and `log_joint_grads`, which is `log_joint_grad` of all chains at once.

    Attributes
    ----------
    names : (P,) of the parameters
    """

    @property
    def names(self) -> tuple[str, ...]: ...

    def values(self, points: Array) -> Array:
        """Returns (n,) log-likelihoods of the client's rows at points (n, P); minus infinity where the density is 0."""

    def log_joint_grad(self, xi: Array, u: Array) -> tuple[float, Array, Array]:
        """Returns log p(rows, u | xi), and its gradients in xi (P,) and in the client's own unknowns u (local_size,)."""


@dataclass(frozen=True)
class Own:
    """Holds a client's model, in the coordinates xi.

    Attributes
    ----------
    supplied : of the holder's package
    who : how a sentence of it begins, "client 'a': the model of factory \"schools:model\""
    order : (P,) the number of the job's parameter that each of its names is
    priors : of the job; None where the model has a prior of its own
    apart : a context in which its code runs
    looked_at : not empty once its answers were compared with each other, at the first question
    """

    supplied: Supplied
    who: str
    order: Indices
    priors: Priors | None = None
    apart: Apart = nullcontext
    looked_at: list[bool] = field(default_factory=list)

    @classmethod
    def of(
        cls, supplied: object, who: str, names: tuple[str, ...], priors: Priors | None, *, local: bool, apart: Apart = nullcontext
    ) -> Own:
        """Makes it of a model that has the parameters of the job, in whatever order. Raises JobError: the model has other
        parameters, or lacks a method."""
        wanted = "log_joint_grad" if local else "values"
        its_names = tuple(map(str, named)) if isinstance(named := getattr(supplied, "names", None), tuple | list) else None
        if its_names is None or not callable(getattr(supplied, wanted, None)):
            lacks = "names, a list of its parameters," if its_names is None else f"method {wanted}"
            raise JobError(f"{who} has no {lacks}: give it one, as docs/how-to/own-model.md says")
        if sorted(its_names) != sorted(names) or len(set(its_names)) < len(its_names):
            origin = "the model of the server" if priors is None else "[model.priors]"
            more = [
                f"it has {', '.join(map(repr, extra))} beside" for extra in [[n for n in its_names if n not in names]] if extra
            ]
            more += [
                f"it lacks {', '.join(map(repr, lacks))} of" for lacks in [[n for n in names if n not in its_names]] if lacks
            ]
            reason = " and ".join(more) or "a name comes twice among"
            raise JobError(f"{who}: {reason} the parameters of {origin}; name the same ones in both")
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
        model = cls(cast(Supplied, supplied), who, np.array([names.index(name) for name in its_names], np.int64), priors, apart)
        model._constrains_alike()
        return model

    @property
    def size(self) -> int:
        """P, the number of parameters."""
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
        """Returns (n,) log-likelihoods at points (n, P); NaN where one is no number. `nodes`: not looked at."""
        taken = self.taken(points)
        answer = self.answer("values", taken, (len(points),))
        answer[answer == np.inf] = np.nan
        lost = np.isnan(answer).mean() if len(answer) >= FEWEST else 0.0
        if lost > LOST_PART:
            text = f"{self.who}: values are no numbers at more than {100 * LOST_PART:g} % of the points"
            remedy = "return minus infinity where there is no density, and compute in float64"
            first = dict(zip(self.supplied.names, taken[np.isnan(answer)][0].tolist()))
            raise OwnFault(f"{text}; {remedy}", f"{text} ({100 * lost:.1f} %, first at {first}); {remedy}")
        return answer

    def gradients(self, points: Array) -> tuple[Array, Array]:
        """Returns (c,) values at points (c, P), and gradients (c, P)."""
        if not self.has("gradient"):
            return differences.gradient(self.values, points)
        return self.values(points), self._gradient(points)

    def curvature(self, points: Array, nodes: int = 1) -> tuple[Array, Array, Array]:
        """Returns (c,) values, gradients (c, P), and minus Hessians (c, P, P): the model's own, or by differences."""
        derivatives = self._curvature(points)
        if not self.looked_at:
            self.looked_at.append(True)
            self._agrees(points[:1], *(derivative[:1] for derivative in derivatives))
        return derivatives

    def _agrees(self, point: Array, value: Array, gradient: Array, curved: Array) -> None:
        """Refuses values that differ when they are asked twice, and derivatives that are not those of the values. Raises
        OwnFault: they are so: no search would find a mode, and no message would say why."""
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
        """Returns (n,) zeros: integrals are the model's own affair."""
        return np.zeros(len(points))

    def joint(self, xi: Array, u: Array) -> tuple[float, Array, Array]:
        """Returns log p(rows, u | xi) at one point, and its gradients in xi (P,) and u."""
        taken = self.taken(xi[np.newaxis])[0]
        answer = self._asked("log_joint_grad", lambda: self.supplied.log_joint_grad(taken, u))
        value, slope, slope_u = self._three("log_joint_grad", answer, ((), (self.size,), (self.local_size,)))
        return float(value), self._back(xi[np.newaxis], slope[np.newaxis])[0], slope_u

    def joints(self, xi: Array, u: Array) -> tuple[Array, Array, Array]:
        """Returns the same for all chains: (c,) values at (c, P) and (c, local_size), and both gradients."""
        if not self.has("log_joint_grads"):
            points, joint = self.taken(xi), self.supplied.log_joint_grad
            each_answer = cast(
                list[object], self._asked("log_joint_grad", lambda: [joint(*each_part) for each_part in zip(points, u)])
            )
            shapes: tuple[tuple[int, ...], ...] = ((), (self.size,), (self.local_size,))
            each = [self._three("log_joint_grad", answer, shapes) for answer in each_answer]
            slopes = self._back(xi, np.array([each_part[1] for each_part in each]))
            return np.array([each_part[0] for each_part in each]), slopes, np.array([each_part[2] for each_part in each])
        taken = self.taken(xi)
        together = cast(Callable[[Array, Array], object], getattr(self.supplied, "log_joint_grads"))  # noqa: B009
        answer = self._asked("log_joint_grads", lambda: together(taken, u))
        value, slope, slopes_u = self._three("log_joint_grads", answer, ((len(xi),), xi.shape, u.shape))
        return value, self._back(xi, slope), slopes_u

    def _back(self, points: Array, slope: Array) -> Array:
        """(c, P) Gradients of the model, carried to the coordinates."""
        slope = slope[:, np.argsort(self.order)]
        if self._in_coordinates:
            return slope
        assert self.priors is not None
        return self.priors.in_coordinates(points, slope, None)[0]

    def _three(self, what: str, answer: object, shapes: tuple[tuple[int, ...], ...]) -> tuple[Array, Array, Array]:
        if not isinstance(answer, tuple | list) or len(answer) != 3:
            raise self._wrong(what, "three results: values, and their gradients in xi and u", type(answer).__name__)
        value, slope, slope_u = (self._checked(what, part, shape) for part, shape in zip(answer, shapes))
        return value, slope, slope_u

    def _gradient(self, points: Array) -> Array:
        """(n, P) Gradients in the coordinates."""
        return self._back(points, self.answer("gradient", self.taken(points), points.shape))

    def taken(self, points: Array) -> Array:
        """Returns (n, P) the points as the model takes them, in the order of its names."""
        with np.errstate(all="ignore"):
            if not self._in_coordinates:
                assert self.priors is not None
                points = np.asarray(self.priors.natural(points), np.float64)
        return np.ascontiguousarray(points[:, self.order])

    def has(self, method: str) -> bool:
        return callable(getattr(self.supplied, method, None))

    def answer(self, what: str, taken: Array, shape: tuple[int, ...]) -> Array:
        """Returns the answer of a method of the model, at points as it takes them. Raises OwnFault: it fails, or returns
        something else than an array of this shape."""
        function = cast(Callable[[Array], object], getattr(self.supplied, what))
        return self._checked(what, self._asked(what, lambda: function(taken)), shape)

    def _asked(self, what: str, function: Callable[[], object]) -> object:
        """The answer of the holder's code."""
        with contained(f"{self.who}: {what}"), self.apart(), silent(), np.errstate(all="ignore"):
            return function()

    def _checked(self, what: str, answer: object, shape: tuple[int, ...]) -> Array:
        with contained(f"{self.who}: the answer of {what}"):
            array = np.asarray(answer)
        if array.dtype != np.float64 or array.shape != shape:
            raise self._wrong(what, f"float64 numbers of the shape {shape}", f"{array.dtype} of the shape {array.shape}")
        return np.array(array)

    def _wrong(self, what: str, wanted: str, came: str) -> OwnFault:
        """The fault of an answer of another shape, which may tell the number of rows and is for the holder."""
        text = f"{self.who}: {what} must return {wanted}"
        return OwnFault(f"{text}; mend the package, and install the same version at every holder", f"{text}, and returned {came}")

    def _constrained(self, xi: Array) -> object:
        constrain = cast(Callable[[Array], object], getattr(self.supplied, "constrain"))  # noqa: B009
        return self._asked("constrain", lambda: constrain(xi))

    def _constrains_alike(self) -> None:
        """Refuses a model that makes other parameters of coordinates than the priors do, with a JobError."""
        if self.priors is None or not getattr(self.supplied, "unconstrained", False) or not self.has("constrain"):
            return
        for value in (-0.5, 0.7):
            xi = np.full((1, self.size), value)
            wanted = np.asarray(self.priors.natural(xi), np.float64)[0][self.order]
            made = np.asarray(self._constrained(xi[0]), np.float64)
            if made.shape != wanted.shape:
                raise JobError(
                    f"{self.who}: constrain makes {made.size} parameters of {self.size} coordinates; matrices, simplexes and the "
                    "like have no place here: take parameters of one number each"
                )
            if wrong := [
                name for name, made_value, other in zip(self.supplied.names, made, wanted) if abs(made_value - other) > 1e-8
            ]:
                raise JobError(
                    f"{self.who}: {', '.join(map(repr, wrong))} has another constraint in the model than in [model.priors]: a "
                    "half-normal, half-student or gamma prior is of a parameter with lower = 0, a normal or student one of any"
                )


@contextmanager
def contained(what: str) -> Iterator[None]:
    """Turns every exception of the holder's code into a fault whose text is for the holder alone. Ctrl-C goes through. Raises
    OwnFault or MemoryError: the code fails, whatever it raises; a MemoryError loses its text, which other parties would read."""
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt from None  # a package may have raised it, with a text
    except MemoryError:
        raise MemoryError(f"{what}: no memory is left for the package") from None
    except BaseException as error:  # asyncio's CancelledError, GeneratorExit and their like are no `Exception`
        raise _fault(what, error) from None


def _fault(what: str, error: BaseException) -> OwnFault:
    """The fault that an exception of the holder's code becomes."""
    text = f"{what} failed ({type(error).__name__})"
    remedy = "mend the package, and install the same version at every holder"
    return OwnFault(f"{text}; {remedy}", f"{text}:\n{''.join(traceback.format_exception(error))}")


# --------------------
# Computes the prior that a model of the holders' own package has itself, at the server, with derivatives by differences.


SLOPE = "log_prior_gradient"
WIDE = 2.0  # starts beside the first are uniform up to this, as Stan's
# By which the first is off 0: programs have corners there (a logit that NumPyro clips), at which their derivatives are wrong.
AWAY = 0.01


@dataclass(frozen=True)
class Given:
    """Holds `log_prior` of a model whose parameters are coordinates themselves: Jacobians of its constraints are part of it."""

    own: Own  # the model, which has no rows
    names: tuple[str, ...]  # of the parameters

    @property
    def size(self) -> int:
        """P, the number of parameters."""
        return len(self.names)

    @property
    def coordinates(self) -> tuple[str, ...]:
        """The names of the coordinates."""
        return self.names

    def values(self, points: Array) -> Array:
        """Returns (S,) log-densities of the points (S, P)."""
        return self.own.answer("log_prior", self.own.taken(points), (len(points),))

    def without_jacobian(self, points: Array) -> Array:
        """Returns (S,) the same: its Jacobians cannot be told from it."""
        return self.values(points)

    def curvature(self, xi: Array) -> tuple[float, Array, Array]:
        """Returns the log-density at xi (P,), its gradient (P,), and minus its Hessian (P, P)."""
        point = xi[np.newaxis]
        if self.own.has(SLOPE):
            value, gradient, curved = differences.of_gradients(self.values, self._slopes, point)
        else:
            value, gradient, curved = differences.curvature(self.values, point)
        return float(value[0]), gradient[0], curved[0]

    def log_prior_grad(self, xi: Array) -> tuple[float, Array]:
        """Returns the log-density at xi (P,), and its gradient (P,)."""
        point = xi[np.newaxis]
        if self.own.has(SLOPE):
            return float(self.values(point)[0]), self._slopes(point)[0]
        value, slope = differences.gradient(self.values, point)
        return float(value[0]), slope[0]

    def _slopes(self, points: Array) -> Array:
        """(S, P) Gradients, of a model that has them."""
        return self.own.answer(SLOPE, self.own.taken(points), points.shape)[:, np.argsort(self.own.order)]

    def drawn(self, u: Array) -> Array:
        """Returns (S, P) starts by uniform numbers (S, P): the model's own as far as it has some."""
        points = 2 * WIDE * (np.array(u) - 0.5)
        starts = getattr(self.own.supplied, "starts", None)
        if starts is None:
            corner = points[0] == 0
            points[0, corner] = AWAY * np.sqrt(2.0 + np.arange(self.size))[corner]
            return points
        coordinates = np.asarray(starts, np.float64)
        if coordinates.ndim != 2 or coordinates.shape[1] != self.size or not np.isfinite(coordinates).all():
            raise JobError(f"{self.own.who}: starts must be finite numbers of the shape (k, {self.size})")
        n = min(len(coordinates), len(points))
        points[:n] = coordinates[:n, np.argsort(self.own.order)]
        return points

    def natural(self, points: Array) -> Array:
        """Returns (S, P) the published numbers at the points (S, P)."""
        if not self.own.has("natural"):
            return points
        return self.own.answer("natural", self.own.taken(points), points.shape)[:, np.argsort(self.own.order)]
