"""Goes on from a run that has ended: a client comes, or one goes (docs/spec/likelihood.md, section 12).

The server has kept the run's weighted points with the sums of all clients' values there. A client that comes alone (`start`) is
asked for its values at these points, and nobody else is asked anything: a point's weight is multiplied by the newcomer's
likelihood. Without a client it is divided by that client's. Both are taken only where the new weights are good (`settled`): k-hat
alone passes answers that are off, and of a number with a long tail the number of draws says little.

Where they are not, all meet: the newcomers alone are asked for Newton steps on their likelihood and a normal distribution, which
stands for the run's posterior (`Normal`), and then all for values at draws about the mode of both (`go_on_at`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...arrays import Array
from ...models.expfam import packed, unpacked
from ...models.weighted import Weighted
from ..core.kept import PersistentSet
from ..core.messages import Event, Protocol, Saved, ServerEffects, evolve
from . import machine
from .client import Client, client_receive
from .draws import (
    ENOUGH,
    Server,
    answers_of,
    ask_values,
    asking,
    errors,
    finite_enough,
    first_source,
    questions_about,
    tell_nobody,
    unresolved,
    weighted,
)
from .settings import LOST, AskValues, Settings, Values, shortened

K_HAT = 0.5  # up to which weights of a few thousand points have a variance
OFF = 0.05  # posterior sds by which means and sds may be off, as far as the scatter between nets tells


@dataclass(frozen=True)
class Normal:
    """Is a normal distribution of xi in the place of a prior: the posterior of a run that has ended.

    Attributes
    ----------
    mean, precision : (P,), (P, P)

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.algorithms.importance.extension import Normal
    >>> Normal(np.zeros(2), np.eye(2)).curvature(np.array([1.0, 0.0]))[1].tolist()
    [-1.0, 0.0]
    """

    mean: Array
    precision: Array

    @classmethod
    def of(cls, posterior: Weighted) -> Normal:
        """Returns the normal distribution with the moments of weighted draws."""
        return cls(posterior.mean, np.asarray(np.linalg.inv(posterior.covariance), np.float64))

    @classmethod
    def of_content(cls, content: Mapping[str, Sequence[float]]) -> Normal:
        """Returns the distribution that `content` has written."""
        mean = np.array(content["mean"])
        return cls(mean, unpacked(np.array([content["precision"]]), len(mean))[0])

    @property
    def content(self) -> dict[str, list[float]]:
        """The mean, and the lower triangle of the precision row by row."""
        return {"mean": self.mean.tolist(), "precision": packed(self.precision[np.newaxis])[0].tolist()}

    def values(self, points: Array) -> Array:
        """Returns the log-density (n,) at points (n, P), up to a constant."""
        off = points - self.mean
        return np.asarray(-0.5 * ((off @ self.precision) * off).sum(axis=1))

    def curvature(self, xi: Array) -> tuple[float, Array, Array]:
        """Returns the same at xi (P,), its gradient (P,), and minus its Hessian (P, P)."""
        return float(self.values(xi[np.newaxis])[0]), self.precision @ (self.mean - xi), self.precision


# The run that has ended --------------------


def kept(state: Server, values: Array) -> Saved:
    """Returns an ended state as it is kept, with `values` (N, J) at its draws: each client's, or (N, 1) their sums.

    Draws beyond the box of secure sums have no weight, and whoever goes on has no box: there values are none.
    """
    xi = np.concatenate([draws.xi for draws in state.draws])
    values = np.where(state.coordinates.beyond(xi)[:, np.newaxis], -np.inf, values)
    ends = np.cumsum([len(draws.xi) for draws in state.draws])[:-1]
    draws = tuple(replace(draws, values=part) for draws, part in zip(state.draws, np.split(values, ends), strict=True))
    return machine.save(_of(replace(state, draws=draws), values.shape[1]))


def restored(fresh: Server, saved: Saved, names: tuple[str, ...]) -> Server:
    """Returns the state that was kept; `names`: of the columns of values."""
    return replace(machine.load(fresh, saved), names=names, settings=fresh.settings)


def without(state: Server, name: str) -> Server:
    """Returns the state without a client's values."""
    others = [k for k, client in enumerate(state.names) if client != name]
    draws = tuple(replace(draws, values=draws.values[:, others]) for draws in state.draws)
    return _of(replace(state, draws=draws, names=tuple(state.names[k] for k in others)), len(others))


def _of(state: Server, clients: int) -> Server:
    """Returns the state with nothing of single clients but their values at draws."""
    (starts, _, P), triangle = state.own_gradient.shape, state.own_hessian.shape[2]
    return replace(
        state,
        own_gradient=np.zeros((starts, clients, P)),
        own_hessian=np.zeros((starts, clients, triangle)),
        not_finite=np.zeros(clients),
        first_gradient=np.zeros((0, P)),
        first_hessian=np.zeros((0, triangle)),
        waiting=PersistentSet(),
    )


def settled(state: Server) -> bool:
    """Tells whether the weights of a run that has another client, or one less, can be taken for a result."""
    posterior = weighted(state)
    return posterior.k_hat <= K_HAT and max(errors(state, posterior)) <= OFF and not unresolved(state)


# A client comes alone --------------------


def start(run: Server, names: tuple[str, ...]) -> tuple[Server, ServerEffects]:
    """Returns the server's machine, which asks the newcomers `names` for values at all points of a run, and its messages."""
    # Steps of several rounds about one centre are rounded anew, by less than values are.
    centre, steps = shortened(np.concatenate([draws.xi for draws in run.draws]))
    state = evolve(run, names=names, round=0, drawn=0, ahead=0, halted="", centre=centre, asked=steps)
    return asking(state, questions_about(state, 0))


def server_receive(state: Server, sender: int, event: Event) -> tuple[Server, ServerEffects]:
    """Takes one answer; after the last the newcomers' values stand beside those of the run."""
    state = machine.received(state, sender, event)
    if state.waiting:
        return state, []
    n = len(state.open)
    several = answers_of(state, Values, n)
    values = np.concatenate([np.column_stack([answer.values for answer in answers]) for answers in several])
    lost = values <= LOST
    finite_enough(state, lost)
    ends = np.cumsum([len(draws.xi) for draws in state.draws])[:-1]
    new_values = np.split(np.where(lost, -np.inf, values), ends)
    draws = tuple(
        replace(net, values=np.column_stack([new, net.values])) for net, new in zip(state.draws, new_values, strict=True)
    )
    at_draws = max(sum(answer.rule for answer in answers) for answers in several) + float(state.rule[1])
    state = evolve(state, draws=draws, round=n, drawn=n, rule=np.array([state.rule[0], at_draws]), halted=ENOUGH)
    return tell_nobody(evolve(state, asked=np.empty((0, state.coordinates.size))))


def named(state: Server, earlier: tuple[str, ...]) -> Server:
    """Returns the state once all newcomers have answered, with the names of all whose values it has."""
    return _of(replace(state, names=(*state.names, *earlier)), len(state.names) + len(earlier))


def protocol() -> Protocol[Server, Client]:
    """Returns the protocol of a client that comes alone."""
    return Protocol(
        "importance-extension",
        (AskValues,),
        (Values,),
        server_receive,
        client_receive,
        machine.finished,
        machine.save,
        machine.load,
    )


# All meet --------------------


def climb(run: Server, settings: Settings, names: tuple[str, ...]) -> tuple[Server, ServerEffects]:
    """Returns the server's machine that asks the newcomers for Newton steps, from the mean of the run's posterior."""
    normal, settings = Normal.of(weighted(run)), replace(settings, rounds=0, starts=1, nodes=run.nodes)
    return machine.start(settings, normal, names, run.coordinates, normal.mean[np.newaxis])


def go_on_at(fresh: Server, mode: Server) -> tuple[Server, ServerEffects]:
    """Returns the server's machine that asks all clients for values at draws about a mode; `fresh`: before any question."""
    state = replace(fresh, climb=mode.climb, nodes=mode.nodes, units=mode.units, rule=mode.rule, round=0, decided=1, looked=1)
    return ask_values(state, first_source(state))
