"""PVI with client-level privacy: neighbours differ by one whole client.

Each round the (trusted) server flips a secret coin for every client, asks those that it includes, scales their changes to
comparable blocks, clips each to a norm of C, and adds one Gaussian noise to the sum; only the noisy sum reaches q. Clients
are those of `pvi`.

Two ways of keeping q = prior x sites although the sum contains noise: `own-sites` (an included client adds its own clipped
change to its site; a noise site, whose value nobody needs, absorbs the rest) and `averaged-sites` (every client adds the M-th
part of the released sum, a function of that sum and the public M). Source: dp-pvi.md, section 11.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..models.expfam import Gaussian, keeps_proper
from ..privacy.accountant import Mechanism
from ..privacy.noise import Source
from . import pvi
from .averaging import Trajectory
from .messages import SERVER, Charge, Charged, ChargeFailed, ClientLost, Message, Protocol, RemoteFault, Saved, ServerEffects
from .pvi import Precision, QUpdate, Shift, SiteApplied, SiteDelta
from .settings import Settings
from .shards import clipped

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class SiteShare(Message, kind=14):
    """Server to every client (averaged-sites): what to add to the site; the M-th part of what q has gained."""

    round: int
    dh: Shift
    dP: Precision


@dataclass(frozen=True)
class Server:
    """The server's state: as `pvi.Server`, but q is kept itself, since no set of sites adds up to it.

    Attributes
    ----------
    mechanism, source : sampler of clients, clip and noise
    pending : client -> its change, until all of the round have come
    charging : a charge is being made at the server's own budget
    """

    settings: Settings
    prior: Gaussian
    q: Gaussian
    mechanism: Mechanism
    source: Source
    updates: NDArray[np.int64]
    trajectory: Trajectory
    averaged_sites: bool = False
    round: int = 0
    waiting: frozenset[int] = frozenset()
    pending: Mapping[int, Vector] = field(default_factory=dict)
    charging: bool = False
    spent: bool = False
    lost: frozenset[int] = frozenset()
    halvings: int = 0
    rejected: int = 0

    @property
    def n_clients(self) -> int:
        return len(self.updates)

    @property
    def refused(self) -> frozenset[int]:
        """All or none: the budget is the federation's."""
        return frozenset(range(self.n_clients)) if self.spent else frozenset()

    @property
    def stop(self) -> str | None:
        """As `pvi.Server.stop`."""
        if self.settings.rounds is not None and self.round >= self.settings.rounds:
            return "rounds"
        return "budget" if self.spent else "lost" if len(self.lost) == self.n_clients else None


def start(
    settings: Settings,
    prior: Gaussian,
    n_clients: int,
    mechanism: Mechanism,
    source: Source,
    averaged_sites: bool = False,
) -> tuple[Server, ServerEffects]:
    """The server's first state, and the charge of its first round."""
    updates, trajectory = np.zeros(n_clients, np.int64), Trajectory(np.zeros(2 * prior.d))
    return _charge(Server(settings, prior, prior, mechanism, source, updates, trajectory, averaged_sites))


def finished(state: Server) -> bool:
    return state.stop is not None and not state.waiting and not state.charging


def released(state: Server) -> Gaussian:
    """The averaged or the last q."""
    if state.settings.average != "half" or not state.trajectory.count:
        return state.q
    point, d = state.trajectory.half_mean(), state.prior.d
    P = np.exp(-2 * point[d:])
    return Gaussian(P * point[:d], P)


def _charge(state: Server) -> tuple[Server, ServerEffects]:
    if state.stop:
        return state, []
    return replace(state, charging=True), [(SERVER, Charge(1, state.round))]


def server_receive(state: Server, sender: int, event: Any) -> tuple[Server, ServerEffects]:
    """The answer of the server's own budget, a client's change, or its loss."""
    if sender == SERVER and state.charging and isinstance(event, ChargeFailed):
        return replace(state, charging=False, spent=True), []
    if sender == SERVER and state.charging and isinstance(event, Charged):
        state.source.rekey()
        included = state.mechanism.draw(state.source, state.n_clients, state.round)
        asked = frozenset(int(k) for k in included) - state.lost
        state = replace(state, charging=False, waiting=asked)
        if not asked:
            return _release(state)
        return state, [(k, QUpdate(state.round, state.round, state.q.h, state.q.P)) for k in sorted(asked)]
    if isinstance(event, ClientLost):
        was_waiting = event.client in state.waiting
        state = replace(state, lost=state.lost | {event.client}, waiting=state.waiting - {event.client})
        return _release(state) if was_waiting and not state.waiting else (state, [])
    if not isinstance(event, SiteDelta) or sender not in state.waiting or event.round != state.round:
        raise RemoteFault(f"client {sender}: {type(event).__name__} is not an answer to round {state.round}")
    change = np.concatenate([event.dh, event.dP])
    if not np.isfinite(change).all():
        raise RemoteFault(f"client {sender}: SiteDelta of round {event.round} is not finite")
    state = replace(state, pending={**state.pending, sender: change}, waiting=state.waiting - {sender})
    return (state, []) if state.waiting else _release(state)


def _release(state: Server) -> tuple[Server, ServerEffects]:
    """Adds the clipped changes and the noise, and moves q by the largest fraction of the sum that keeps it proper."""
    d, M = state.prior.d, state.n_clients
    scale = np.concatenate([np.sqrt(state.q.P), state.q.P])  # public: makes the two blocks comparable
    total = np.zeros(2 * d, np.int64)
    weights = {}
    for k in sorted(state.pending):
        integer, weights[k] = clipped(state.pending[k] / scale, state.mechanism)
        total += integer
    noisy = state.mechanism.release(state.source, total, state.round) * scale
    dh, dP = noisy[:d], noisy[d:]
    alpha = 1.0
    while alpha >= pvi.SMALLEST_ALPHA and not keeps_proper(state.q.P, dP, alpha):
        alpha /= 2
    if alpha < pvi.SMALLEST_ALPHA:
        alpha = 0.0
    q = Gaussian(state.q.h + alpha * dh, state.q.P + alpha * dP)
    effects: ServerEffects = []
    for k, w in weights.items():
        effects.append((k, SiteApplied(int(state.updates[k]), 0.0 if state.averaged_sites else alpha * w)))
    if state.averaged_sites:
        share = SiteShare(state.round, alpha * dh / M, alpha * dP / M)
        effects += [(k, share) for k in range(M) if k not in state.lost]
    updates = state.updates.copy()
    updates[list(weights)] += 1
    trajectory = state.trajectory.add(np.concatenate([q.mean, -0.5 * np.log(q.P)]))
    state = replace(state, q=q, pending={}, updates=updates, trajectory=trajectory, round=state.round + 1)
    state = replace(state, halvings=state.halvings + int(0 < alpha < 1), rejected=state.rejected + int(alpha == 0))
    state, charge = _charge(state)
    return state, effects + charge


def client_receive(state: pvi.Client, event: Any) -> tuple[pvi.Client, list[Any]]:
    """`pvi.client_receive`, and the shares of averaged-sites."""
    if isinstance(event, SiteShare):
        return replace(state, site_h=state.site_h + event.dh, site_P=state.site_P + event.dP), []
    return pvi.client_receive(state, event)


_COUNTS = ("round", "halvings", "rejected")


def save(state: Server | pvi.Client) -> Saved:
    """As `pvi.save`."""
    if isinstance(state, pvi.Client):
        return pvi.save(state)
    saved: Saved = {name: getattr(state, name) for name in _COUNTS}
    saved |= {"h": state.q.h, "P": state.q.P, "updates": state.updates.astype(float), "spent": int(state.spent)}
    saved["flags"] = np.array([[k in s for k in range(state.n_clients)] for s in (state.lost, state.waiting)], float)
    return saved | state.trajectory.save()


def load(state: Server | pvi.Client, saved: Mapping[str, Any]) -> Any:
    """As `pvi.load`."""
    if isinstance(state, pvi.Client):
        return pvi.load(state, saved)
    lost, waiting = (frozenset(np.flatnonzero(row).tolist()) for row in saved["flags"])
    return replace(
        state,
        **{name: saved[name] for name in _COUNTS},
        q=Gaussian(saved["h"], saved["P"]),
        updates=saved["updates"].astype(np.int64),
        spent=bool(saved["spent"]),
        lost=lost,
        trajectory=Trajectory.load(saved),
        waiting=waiting,
        pending={},
        charging=False,
    )


PROTOCOL = Protocol(
    "pvi-client-level", (QUpdate, SiteApplied, SiteShare), (SiteDelta,), server_receive, client_receive, finished, save, load
)
