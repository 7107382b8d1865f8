"""Runs PVI with client-level privacy: neighbours differ by one whole client.

Each round the (trusted) server asks every client, scales their changes to comparable blocks, clips each to a norm of C, flips a
secret coin for every client, and adds one Gaussian noise to the sum of those that it includes; only the noisy sum reaches q.
Clients are those of `pvi`.

The amplification by sampling rests on secret coins: asking only the included clients would publish them. So nothing but that sum
and the weight of `SiteApplied`, which is between the server and one client, depends on a coin: not the kinds of messages, their
number, their lengths or their order, and no count. A coin falls when all changes have come, so that none is known while a client
can still be lost.

Two ways of keeping q = prior x sites although the sum contains noise: `own-sites` (a client adds its own clipped change to its
site, with weight 0 if it was left out; a noise site, whose value nobody needs, absorbs the rest) and `averaged-sites` (every
client adds the M-th part of the released sum, a function of that sum and the public M). Source: docs/spec/pvi.md, section 11.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TypeVar, final

import numpy as np
from numpy.typing import NDArray

from ...arrays import Vector
from ...models.expfam import Gaussian, keeps_proper
from ...privacy.accountant import Mechanism
from ...privacy.noise import Source
from ..core.kept import GIVEN, PersistentMap, PersistentSet, load, save
from ..core.messages import (
    SERVER,
    Charge,
    Charged,
    ChargeFailed,
    ClientEffects,
    ClientLost,
    Event,
    Protocol,
    Release,
    Released,
    RemoteFault,
    Saved,
    ServerEffects,
    array,
    evolve,
)
from ..core.rounds import to_each
from ..core.windows import Trajectory
from . import machine as pvi
from .machine import SMALLEST_ALPHA, point_of
from .machine import released as released
from .messages import QUpdate, Settings, SiteApplied, SiteDelta, SiteShare
from .scale import clipped


@final
@dataclass(frozen=True)
class Server:
    """Is the server's state: as `pvi.Server`, but q is kept itself, since no set of sites adds up to it."""

    settings: Settings = field(metadata=GIVEN)
    prior: Gaussian = field(metadata=GIVEN)
    q: Gaussian
    # mechanism, source: sampler of clients, clip and noise
    mechanism: Mechanism = field(metadata=GIVEN)
    source: Source = field(metadata=GIVEN)
    updates: NDArray[np.int64]  # (M,) answers of each client, whether or not they entered a sum
    trajectory: Trajectory
    noise: Vector  # (2 d,) variance of the noise in q's h and P, of all rounds so far
    averaged_sites: bool = field(default=False, metadata=GIVEN)
    round: int = 0
    waiting: PersistentSet[int] = field(default_factory=PersistentSet)
    # client -> its change, until all of the round have come
    pending: PersistentMap[int, Vector] = field(default_factory=PersistentMap, metadata=GIVEN)
    # charging, releasing: a charge is being made at the server's own budget; a noisy sum is being stored
    charging: bool = field(default=False, metadata=GIVEN)
    releasing: bool = field(default=False, metadata=GIVEN)
    spent: bool = False
    lost: PersistentSet[int] = field(default_factory=PersistentSet)
    halvings: int = 0
    rejected: int = 0

    def restored(self, saved: Saved) -> Server:
        """Returns the state between two rounds."""
        return evolve(self, charging=False, releasing=False)

    @property
    def n_clients(self) -> int:
        return len(self.updates)

    @property
    def refused(self) -> frozenset[int]:
        """All clients or none, since the budget is the federation's."""
        return frozenset(range(self.n_clients)) if self.spent else frozenset()

    @property
    def stop(self) -> str | None:
        """The reason why no more is asked; see `Schedule.stop`."""
        rounds, cap = self.settings.rounds, self.settings.updates_per_client  # one update of each client is a round
        if rounds is not None and self.round >= rounds:
            return "rounds"
        if self.spent or (cap is not None and self.round >= cap):
            return "budget"
        return "lost" if len(self.lost) == self.n_clients else None


def start(
    settings: Settings, prior: Gaussian, n_clients: int, mechanism: Mechanism, source: Source, averaged_sites: bool = False
) -> tuple[Server, ServerEffects]:
    """Returns the server's first state, and the charge of its first round."""
    updates, trajectory = np.zeros(n_clients, np.int64), Trajectory(np.zeros(2 * prior.d))
    return _charge(Server(settings, prior, prior, mechanism, source, updates, trajectory, np.zeros(2 * prior.d), averaged_sites))


def finished(state: Server) -> bool:
    return state.stop is not None and not state.waiting and not state.charging and not state.releasing


def _charge(state: Server) -> tuple[Server, ServerEffects]:
    """Asks the server's budget for the next round."""
    if state.stop:
        return state, []
    return replace(state, charging=True), [(SERVER, Charge(1, state.round))]


def server_receive(state: Server, sender: int, event: Event) -> tuple[Server, ServerEffects]:
    """Takes the answer of the server's own budget or disk, a client's change, or its loss."""
    if sender == SERVER and state.charging and isinstance(event, ChargeFailed):
        return replace(state, charging=False, spent=True), []
    if sender == SERVER and state.charging and isinstance(event, Charged):
        everybody = PersistentSet(k for k in range(state.n_clients) if k not in state.lost)
        state = replace(state, charging=False, waiting=everybody)
        # Everybody is asked: to ask the included clients alone would publish the coins.
        return state, to_each(sorted(everybody), QUpdate(state.round, state.round, state.q.h, state.q.P))
    if sender == SERVER and state.releasing and isinstance(event, Released) and event.round == state.round:
        return _apply(replace(state, releasing=False), event.content)
    if isinstance(event, ClientLost):
        was_waiting = event.client in state.waiting
        state = replace(state, lost=state.lost | {event.client}, waiting=state.waiting - {event.client})
        return _sum(state) if was_waiting and not state.waiting else (state, [])
    if not isinstance(event, SiteDelta) or sender not in state.waiting or event.round != state.round:
        raise RemoteFault(f"{type(event).__name__} is not an answer to round {state.round}", sender)
    change = np.concatenate([event.dh, event.dP])
    if not np.isfinite(change).all():
        raise RemoteFault(f"SiteDelta of round {event.round} is not finite", sender)
    state = replace(state, pending=state.pending.plus(sender, change), waiting=state.waiting - {sender})
    return (state, []) if state.waiting else _sum(state)


def _scale(state: Server) -> Vector:
    """Returns the public scale that makes the two blocks of a change comparable."""
    return np.concatenate([np.sqrt(state.q.P), state.q.P])


def _sum(state: Server) -> tuple[Server, ServerEffects]:
    """Draws coins and noise, and adds the clipped changes of the included.

    Nothing of it leaves before it is stored, so that the same sum is released after a crash, with the same weights.
    """
    scale, M = _scale(state), state.n_clients
    state.source.rekey()
    included = np.zeros(M, np.int64)
    included[state.mechanism.draw(state.source, M, state.round)] = 1
    total, weights = np.zeros(len(scale), np.int64), np.zeros(M)
    for k in sorted(state.pending):
        # All changes are clipped, also those left out, so that time shows no coin either.
        integer, factor = clipped(state.pending[k] / scale, state.mechanism)
        total += included[k] * integer
        weights[k] = included[k] * factor
    noisy = state.mechanism.release(state.source, total, state.round)
    return replace(state, releasing=True), [(SERVER, Release(state.round, {"noisy": noisy, "weights": weights}))]


def _apply(state: Server, content: Saved) -> tuple[Server, ServerEffects]:
    """Moves q by the largest fraction of the noisy sum that keeps it proper."""
    d, M, weights = state.prior.d, state.n_clients, array(content, "weights")
    scale = _scale(state)
    noisy = array(content, "noisy") * scale
    dh, dP = noisy[:d], noisy[d:]
    alpha = 1.0
    # Noise can make the sum as large as q itself: it is halved until the precision stays positive definite.
    while alpha >= SMALLEST_ALPHA and not keeps_proper(state.q.P, dP, alpha):
        alpha /= 2
    if alpha < SMALLEST_ALPHA:
        alpha = 0.0
    q = Gaussian(state.q.h + alpha * dh, state.q.P + alpha * dP)
    # A noise site keeps all noise there ever was; sites that take it over go back from it by the damping.
    kept = 1 - state.settings.damping if state.averaged_sites else 1.0
    noise = kept**2 * state.noise + (alpha * state.mechanism.sigma * state.mechanism.clip * scale) ** 2
    effects: ServerEffects = []
    # A client's site follows q by the weight that it learns here; averaged sites move alike at all clients.
    answered = sorted(state.pending)
    for k in answered:
        fraction = 0.0 if state.averaged_sites else alpha * float(weights[k])
        effects.append((k, SiteApplied(int(state.updates[k]), fraction)))
    if state.averaged_sites:
        share = SiteShare(state.round, alpha * dh / M, alpha * dP / M)
        effects += [(k, share) for k in range(M) if k not in state.lost]
    # A rejected round counts as well: its answers were released, and are charged.
    updates = state.updates.copy()
    updates[answered] += 1
    trajectory = state.trajectory.add(point_of(q))
    state = replace(
        state, q=q, noise=noise, pending=PersistentMap(), updates=updates, trajectory=trajectory, round=state.round + 1
    )
    state = replace(state, halvings=state.halvings + int(0 < alpha < 1), rejected=state.rejected + int(alpha == 0))
    state, charge = _charge(state)
    return state, effects + charge


def client_receive(state: pvi.Client, event: Event) -> tuple[pvi.Client, ClientEffects]:
    """Answers as `pvi.client_receive`, and takes the shares of averaged-sites."""
    if isinstance(event, SiteShare):
        return replace(state, site_h=state.site_h + event.dh, site_P=state.site_P + event.dP), []
    return pvi.client_receive(state, event)


Party = TypeVar("Party", Server, pvi.Client)


PROTOCOL: Protocol[Server, pvi.Client] = Protocol(
    "pvi-client-level", (QUpdate, SiteApplied, SiteShare), (SiteDelta,), server_receive, client_receive, finished, save, load
)


def protocol(*, averaged_sites: bool) -> Protocol[Server, pvi.Client]:
    """Returns the protocol with only the messages that a job can send."""
    return PROTOCOL if averaged_sites else replace(PROTOCOL, to_client=(QUpdate, SiteApplied))
