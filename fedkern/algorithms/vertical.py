"""Variational inference for vertically split data: one exchange an iteration (AV, split network), or two (PL).

Because the predictor is a sum, nobody ever needs the z_k of somebody else. AV: clients send z_j, the server answers with the
slopes r_i = l'(y_i, eta_i), and each client takes its own gradient step. PL: the server answers with the sum Z, clients with
their part rho_j of the likelihood's slopes, the server with the sum R of these. All share one joint draw in an iteration: the
theta_j, eps_j and tau_j that made z_j also make the gradient.

What leaves a client is z_j and, in PL, rho_j with its sums (and, if the job asks, its terms of the ELBO): never theta, a
variational parameter, a network's weight or a row. Rows of a mini-batch follow from the public seed and the round, so no index is
sent. Source: vertical.md, sections 5 to 8.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import LostPeer, NumericalError
from ..kernels import rng
from ..models.likelihood import Likelihood
from ..models.vertical import Drawn, Shared, Site
from .averaging import Trajectory
from .messages import (
    SERVER,
    ClientEffects,
    ClientLost,
    Deadline,
    Message,
    Protocol,
    RemoteFault,
    Saved,
    ServerEffects,
    evolve,
)
from .optim import OPTIMISERS

Vector = NDArray[np.float64]
Index = NDArray[np.int64]
Rows = Annotated[NDArray[np.float64], "s n"]
Draws = Annotated[NDArray[np.float64], "s"]
Dispersions = Annotated[NDArray[np.float64], "s gamma"]


@dataclass(frozen=True)
class Begin(Message, kind=50):
    """Server to client: draw, and send the first z."""

    round: int


@dataclass(frozen=True)
class ZShare(Message, kind=51):
    """Client to server: z_j of the round's rows, for each of S draws."""

    round: int
    z: Rows


@dataclass(frozen=True)
class Residual(Message, kind=52):
    """Server to client: the slopes r of the log-likelihood, and nothing else."""

    round: int
    r: Rows


@dataclass(frozen=True)
class PredictorSum(Message, kind=53):
    """Server to client: Z = offset + sum_j z_j, and the draws of b and of log sigma."""

    round: int
    Z: Rows
    b: Draws
    log_scale: Dispersions


@dataclass(frozen=True)
class LikelihoodShare(Message, kind=54):
    """Client to server (PL): rho_j, its sum over rows, and this client's part of the slope in log sigma."""

    round: int
    rho: Rows
    slopes: Draws
    scales: Dispersions


@dataclass(frozen=True)
class LikelihoodSum(Message, kind=55):
    """Server to client (PL): R = sum_j rho_j."""

    round: int
    R: Rows


@dataclass(frozen=True)
class BoundShare(Message, kind=56):
    """Client to server, if the job asks for the trace of the ELBO: this client's terms of it, one number."""

    round: int
    value: float


@dataclass(frozen=True)
class Settings:
    """Numbers that all parties of a job have in common.

    Attributes
    ----------
    model : "augmented" (AV), "power" (PL), or "none" (the split network: z = g)
    response : where y is: "server", or "shared" with all clients
    draws : S, joint draws an iteration
    batch : rows of a mini-batch; None for all
    local_steps : K, steps of a client on its own minorant of the ELBO from one exchange (AV)
    curvature : kappa with -l'' <= kappa; needed where local_steps > 1
    closed_form : whether q(theta) is set to its optimum given q(z) after each step (AV, linear, mean-field)
    cool_down : share of the rounds, the last ones, over which the learning rate falls to 0
    memory : of the average of messages that amortised families are told
    average : "half": the released parameters are the mean over the second half of all rounds
    bound : whether clients send their terms of the ELBO
    gradient_clip : bound on the norm of a gradient; None for none
    """

    seed: int
    rounds: int
    n_rows: int
    n_clients: int
    model: str = "augmented"
    response: str = "server"
    draws: int = 1
    batch: int | None = None
    local_steps: int = 1
    curvature: float | None = None
    closed_form: bool = False
    optimiser: str = "adam"
    learning_rate: float = 0.01
    cool_down: float = 0.0
    memory: float = 0.9
    average: str = "none"
    bound: bool = False
    gradient_clip: float | None = None
    dispersed: bool = False

    def dims(self) -> dict[str, int]:
        """Sizes of the messages."""
        return {"s": self.draws, "n": self.batch or self.n_rows, "gamma": int(self.dispersed)}

    @property
    def factor(self) -> float:
        """All rows over those of a batch."""
        return 1.0 if self.batch is None else self.n_rows / self.batch

    def rate(self, round: int) -> float:
        """The learning rate of a round."""
        left = (self.rounds - round) / max(self.cool_down * self.rounds, 1e-300)
        return self.learning_rate * min(1.0, left)


@lru_cache(maxsize=4)
def _shuffled(seed: int, n_rows: int, epoch: int) -> Index:
    coins = rng.uniform(n_rows, key=rng.key(seed, "batch"), client=SERVER, step=epoch)
    return np.argsort(coins, kind="stable")


def batch_of(settings: Settings, round: int) -> Index | None:
    """The rows of a round, the same at every party: each epoch goes once through a fresh shuffle (section 7)."""
    if settings.batch is None:
        return None
    epoch, k = divmod(round, settings.n_rows // settings.batch)
    shuffled = _shuffled(settings.seed, settings.n_rows, epoch)
    return np.sort(shuffled[k * settings.batch : (k + 1) * settings.batch])


# A client --------------------


@dataclass(frozen=True)
class Client:
    """One client.

    Attributes
    ----------
    site : what it computes; no message can carry what is in it
    y, likelihood : (N,) its copy of the response, and what it is a response of; None where only the server has it
    parameters, optimiser, trajectory : of all its variational parameters, of its networks
    step : its own count of draws, the last word of its random counters
    drawn : the joint draws of this round, one for each of S
    residual : (N,) average of the messages that have come
    own : PL, between the two exchanges: rho_j of each draw
    """

    name: str
    index: int
    settings: Settings
    site: Site
    y: Vector | None
    likelihood: Likelihood | None
    parameters: Vector
    optimiser: Vector
    trajectory: Trajectory
    residual: Vector
    round: int = 0
    step: int = 0
    drawn: tuple[Drawn, ...] = ()
    own: tuple[Vector, ...] = ()

    @property
    def released(self) -> Vector:
        """The averaged or the last parameters."""
        averaged = self.settings.average == "half" and self.trajectory.count
        return self.trajectory.half_mean() if averaged else self.parameters

    @property
    def extra(self) -> Vector:
        """(N, e) what an amortised family is told beside g, now."""
        known = {"response": self.y, "residual": self.residual}
        columns = [known[name] for name in self.site.auxiliary.inputs]
        return np.column_stack(columns) if columns else np.empty((self.settings.n_rows, 0))  # type: ignore[arg-type]


def client(
    name: str,
    index: int,
    settings: Settings,
    site: Site,
    y: Vector | None = None,
    likelihood: Likelihood | None = None,
    sd: float = 0.1,
) -> Client:
    """A client before the first round; `y` and `likelihood` where the response is shared, `sd` that of q(theta) at the start.

    Raises
    ------
    ValueError
        The response is needed here and is not here, or rows or numbers do not fit.
    """
    shared = settings.model == "power" or settings.response == "shared" or "response" in site.auxiliary.inputs
    if shared and (y is None or likelihood is None):
        raise ValueError(f"client {name!r}: the {settings.model} model with response = {settings.response!r} needs y here")
    if site.predictor.n_rows != settings.n_rows or (y is not None and len(y) != settings.n_rows):
        raise ValueError(f"client {name!r}: {site.predictor.n_rows} rows, the job has {settings.n_rows}")
    key = rng.key(settings.seed, "initial")
    parameters = site.initial(rng.uniform(site.n_uniforms, key=key, client=index), sd)
    optimiser = OPTIMISERS[settings.optimiser](settings.learning_rate).init(len(parameters))
    trajectory, residual = Trajectory(np.zeros(len(parameters))), np.zeros(settings.n_rows)
    return Client(name, index, settings, site, y, likelihood, parameters, optimiser, trajectory, residual)


def client_receive(state: Client, event: Any) -> tuple[Client, ClientEffects]:
    """Answers the server: a draw, a part of the likelihood, or after a step the next draw.

    Raises
    ------
    NumericalError
        A gradient is not finite: client, round and part of the parameters are named.
    RemoteFault
        An event that this job does not have, or of another round.
    """
    s = state.settings
    if isinstance(event, Begin) and not state.drawn:
        return _drawn(state)
    if getattr(event, "round", None) != state.round or not state.drawn or isinstance(event, Begin):
        raise RemoteFault(
            f"server: {type(event).__name__} of round {getattr(event, 'round', None)}, expected round {state.round}"
        )
    if isinstance(event, PredictorSum):
        if s.model == "power":
            return _likelihood(state, event)
        if s.response == "shared":
            return _stepped(state, _slopes(state, event), ())
    elif isinstance(event, Residual) and s.response == "server" and s.model != "power":
        return _stepped(state, tuple(event.r), ())
    elif isinstance(event, LikelihoodSum) and state.own:
        return _stepped(state, tuple(event.R), state.own)
    raise RemoteFault(f"server: {type(event).__name__} was not expected of a {s.model} model")


def _drawn(state: Client) -> tuple[Client, ClientEffects]:
    """The joint draws of this round; z leaves."""
    s, site = state.settings, state.site
    index = batch_of(s, state.round)
    d, n = site.predictor.n_theta, s.n_rows if index is None else len(index)
    extra = state.extra if index is None else state.extra[index]
    key = rng.key(s.seed, "draws")
    draws = []
    for i in range(s.draws):
        normals = rng.normal(d + n, key=key, client=state.index, step=state.step + i)
        draws.append(site.draw(state.parameters, normals[:d], normals[d:], extra, index))
    state = evolve(state, drawn=tuple(draws), step=state.step + s.draws, own=())
    out: ClientEffects = [ZShare(state.round, np.stack([drawn.z for drawn in draws]))]
    if s.bound and s.model != "power":
        out.insert(0, BoundShare(state.round, _bound(state)))
    return state, out


def _bound(state: Client) -> float:
    s = state.settings
    return float(np.mean([state.site.bound(state.parameters, drawn, s.factor) for drawn in state.drawn]))


def _of_batch(values: Vector, index: Index | None) -> Vector:
    return values if index is None else values[index]


def _slopes(state: Client, event: PredictorSum) -> tuple[Vector, ...]:
    """AV with the response at the clients: r of each draw."""
    assert state.y is not None  # `client` has seen to it
    assert state.likelihood is not None
    likelihood, y = state.likelihood, _of_batch(state.y, state.drawn[0].index)
    scales = event.log_scale if state.settings.dispersed else np.zeros((len(event.b), 1))
    return tuple(likelihood.slope(y, b + Z, float(w[0])) for Z, b, w in zip(event.Z, event.b, scales))


def _likelihood(state: Client, event: PredictorSum) -> tuple[Client, ClientEffects]:
    """PL: this client's part of the likelihood's slopes, with g_j in the place of z_j."""
    assert state.y is not None
    assert state.likelihood is not None
    s, likelihood = state.settings, state.likelihood
    y, share = _of_batch(state.y, state.drawn[0].index), 1 / s.n_clients
    own, scales, values = [], np.zeros((s.draws, int(s.dispersed))), []
    for i, drawn in enumerate(state.drawn):
        eta = float(event.b[i]) + drawn.g + (event.Z[i] - drawn.z)
        w = float(event.log_scale[i, 0]) if s.dispersed else 0.0
        own.append(share * likelihood.slope(y, eta, w))
        if s.dispersed:
            scales[i] = share * likelihood.slope_scale(y, eta, w).sum()
        if s.bound:
            values.append(share * float(likelihood.value(y, eta, w).sum()))
    rho = np.stack(own)
    out: ClientEffects = [LikelihoodShare(state.round, rho, rho.sum(axis=1), scales)]
    if s.bound:
        out.insert(0, BoundShare(state.round, s.factor * float(np.mean(values)) + _bound(state)))
    return evolve(state, own=tuple(own)), out


def _stepped(state: Client, messages: tuple[Vector, ...], own: tuple[Vector, ...]) -> tuple[Client, ClientEffects]:
    """A step of the optimiser (K of them), and the next draw unless this was the last round."""
    s, index = state.settings, state.drawn[0].index
    parts = tuple(m - o for m, o in zip(messages, own)) if own else messages
    parameters, optimiser = state.parameters, state.optimiser
    columns = state.site.columns(index)
    update = OPTIMISERS[s.optimiser](s.rate(state.round)).update
    for k in range(s.local_steps):
        g = _gradient(state, parameters, parts, own, first=k == 0)
        if columns is None:
            optimiser, change = update(optimiser, g)
            parameters = parameters + change
        else:
            moved, change = update(optimiser[:, columns], g)
            optimiser, parameters = optimiser.copy(), parameters.copy()
            optimiser[:, columns] = moved
            parameters[columns] += change
        if s.closed_form:
            parameters = state.site.closed_form(parameters)
    residual = state.residual
    if "residual" in state.site.auxiliary.inputs:
        rows = slice(None) if index is None else index
        residual = residual.copy()
        residual[rows] = s.memory * residual[rows] + (1 - s.memory) * np.mean(messages, axis=0)
    trajectory = state.trajectory.add(parameters) if s.average == "half" else state.trajectory
    round = state.round + 1
    state = evolve(
        state, parameters=parameters, optimiser=optimiser, residual=residual, trajectory=trajectory, round=round, own=()
    )
    return _drawn(state) if round < s.rounds else (state, [])


def _gradient(state: Client, parameters: Vector, parts: tuple[Vector, ...], own: tuple[Vector, ...], *, first: bool) -> Vector:
    """The mean gradient over the draws. After the first local step the messages are those of the separable minorant of the
    likelihood about the point that was sent (section 8)."""
    s, site, total = state.settings, state.site, None
    for i, drawn in enumerate(state.drawn):
        message = parts[i]
        if not first:
            assert s.curvature is not None
            there = site.draw(parameters, drawn.eps, drawn.tau, drawn.extra, drawn.index)
            message = message - (s.n_clients + 1) * s.curvature * (there.z - drawn.z)
            drawn = there
        g = site.gradient(parameters, drawn, message, own[i] if own else None, s.factor)
        total = g if total is None else total + g
    assert total is not None
    if s.draws > 1:
        total = total / s.draws
    if not np.isfinite(total).all():
        raise NumericalError(_not_finite(state, total))
    if s.gradient_clip is not None:
        norm = float(np.linalg.norm(total))
        total = total * min(1.0, s.gradient_clip / norm) if norm else total
    return total


def _not_finite(state: Client, g: Vector) -> str:
    """Which part of the parameters left the finite numbers."""
    columns = state.site.columns(state.drawn[0].index)
    where = np.flatnonzero(~np.isfinite(g)) if columns is None else columns[~np.isfinite(g)]
    part = next(state.site.place(int(j)) for j in where)
    return (
        f"client {state.name!r}, round {state.round}: the gradient of {part} is not finite; "
        "lower algorithm.learning_rate, raise model.rho, or set algorithm.gradient_clip"
    )


# The server --------------------


@dataclass(frozen=True)
class Server:
    """The server.

    Attributes
    ----------
    shared : what it computes of b and log sigma
    y, offset : (N,) the response (None in PL, if it is not here) and known offsets or None
    parameters, optimiser, trajectory : of q(b, log sigma)
    phase : what it waits for: "z", or in PL "likelihood"
    answers, bounds : what has come of this phase and round
    Z : (S, n) sums of z with the offset; eps, values: (S, d) normals and draws of (b, log sigma)
    bound : of the ELBO at the last round's draws, where clients send their terms; loglik: its likelihood part (AV)
    """

    settings: Settings
    shared: Shared
    y: Vector | None
    offset: Vector | None
    names: tuple[str, ...]
    parameters: Vector
    optimiser: Vector
    trajectory: Trajectory
    round: int = 0
    phase: str = "z"
    answers: Mapping[int, Any] = field(default_factory=dict)
    bounds: Mapping[int, float] = field(default_factory=dict)
    Z: Vector = field(default_factory=lambda: np.zeros((0, 0)))
    eps: Vector = field(default_factory=lambda: np.zeros((0, 0)))
    values: Vector = field(default_factory=lambda: np.zeros((0, 0)))
    bound: float = np.nan
    loglik: float = np.nan
    lost: frozenset[int] = frozenset()

    @property
    def stop(self) -> str | None:
        """Why the rounds ended."""
        return "rounds" if self.round >= self.settings.rounds else None

    @property
    def updates(self) -> NDArray[np.int64]:
        """Steps of each client: as many as rounds."""
        return np.full(self.settings.n_clients, self.round)

    @property
    def released(self) -> Vector:
        """The averaged or the last parameters of q(b, log sigma)."""
        averaged = self.settings.average == "half" and self.trajectory.count
        return self.trajectory.half_mean() if averaged else self.parameters


def start(
    settings: Settings, shared: Shared, names: tuple[str, ...], y: Vector | None, offset: Vector | None = None, sd: float = 0.1
) -> tuple[Server, ServerEffects]:
    """The server's first state, and its first question."""
    if y is None and settings.model != "power":
        raise ValueError(f"the server needs y in the {settings.model} model")
    parameters = shared.block.initial(0.0, sd)
    optimiser = OPTIMISERS[settings.optimiser](settings.learning_rate).init(len(parameters))
    state = Server(settings, shared, y, offset, names, parameters, optimiser, Trajectory(np.zeros(len(parameters))))
    return state, [(k, Begin(0)) for k in range(settings.n_clients)]


def finished(state: Server) -> bool:
    """Whether all rounds are done."""
    return state.round >= state.settings.rounds


def server_receive(state: Server, sender: int, event: Any) -> tuple[Server, ServerEffects]:
    """One answer; when all clients have answered, the next question.

    Raises
    ------
    LostPeer
        A client is gone: without its part there is no predictor.
    RemoteFault
        A stale, repeated or unexpected message.
    """
    if isinstance(event, Deadline):
        return state, []
    if isinstance(event, ClientLost):
        name = state.names[event.client]
        raise LostPeer(
            f"client {name!r} is gone in round {state.round}, and without its part there is no linear predictor; "
            "--resume goes on from the last checkpoint when it is back"
        )
    if getattr(event, "round", None) != state.round:
        raise RemoteFault(f"client {sender}: {type(event).__name__} of round {event.round}, expected round {state.round}")
    if isinstance(event, BoundShare) and state.settings.bound and sender not in state.bounds:
        return evolve(state, bounds={**state.bounds, sender: event.value}), []
    wanted = ZShare if state.phase == "z" else LikelihoodShare
    if not isinstance(event, wanted) or sender in state.answers:
        raise RemoteFault(f"client {sender}: {type(event).__name__} was not expected in round {state.round}")
    state = evolve(state, answers={**state.answers, sender: event})
    if len(state.answers) < state.settings.n_clients:
        return state, []
    return _summed(state) if state.phase == "z" else _combined(state)


def _summed(state: Server) -> tuple[Server, ServerEffects]:
    """All z are here: their sum in client order, a draw of b and log sigma, and the answer."""
    s, shared = state.settings, state.shared
    Z = state.answers[0].z.copy()
    for k in range(1, s.n_clients):
        Z += state.answers[k].z
    index = batch_of(s, state.round)
    if state.offset is not None:
        Z += _of_batch(state.offset, index)
    d = shared.block.size
    eps = np.zeros((s.draws, d))
    if d and s.model != "none":  # the split network has point estimates
        key = rng.key(s.seed, "draws")
        eps = rng.normal(s.draws * d, key=key, client=SERVER, step=state.round).reshape(s.draws, d)
    values = np.array([shared.block.sample(state.parameters, e) for e in eps]).reshape(s.draws, d)
    state = evolve(state, Z=Z, eps=eps, values=values, answers={})
    everyone = range(s.n_clients)
    drawn = [shared.split(v) for v in values]
    if s.model == "power" or s.response == "shared":
        gamma = np.array([[w] for _, w in drawn]) if s.dispersed else np.zeros((s.draws, 0))
        question: Message = PredictorSum(state.round, Z, np.array([b for b, _ in drawn]), gamma)
        if s.model == "power":
            return evolve(state, phase="likelihood"), [(k, question) for k in everyone]
    assert state.y is not None
    y = _of_batch(state.y, index)
    found = [shared.slope(y, b + z, w) for z, (b, w) in zip(Z, drawn)]
    r = np.stack([slope for slope, _ in found])
    if not np.isfinite(r).all():
        raise NumericalError(
            f"server, round {state.round}: a slope of the log-likelihood is not finite; lower algorithm.learning_rate"
        )
    if s.response == "server":
        question = Residual(state.round, r)
    loglik = np.nan
    if s.bound:
        loglik = float(np.mean([shared.likelihood.value(y, b + z, w).sum() for z, (b, w) in zip(Z, drawn)])) * s.factor
    state = _moved(evolve(state, loglik=loglik), r.sum(axis=1), np.array([scale for _, scale in found]))
    return state, [(k, question) for k in everyone]


def _combined(state: Server) -> tuple[Server, ServerEffects]:
    """PL: all parts of the likelihood's slopes are here."""
    s = state.settings
    R = state.answers[0].rho.copy()
    for k in range(1, s.n_clients):
        R += state.answers[k].rho
    slopes = sum(state.answers[k].slopes for k in range(s.n_clients))
    scales = sum(state.answers[k].scales for k in range(s.n_clients))
    question = LikelihoodSum(state.round, R)
    state = _moved(state, np.asarray(slopes), np.asarray(scales)[:, 0] if s.dispersed else np.zeros(s.draws))
    return evolve(state, phase="z", answers={}), [(k, question) for k in range(s.n_clients)]


def _moved(state: Server, slopes: Vector, scales: Vector) -> Server:
    """The server's own step on q(b, log sigma); the round is over."""
    s, shared, f = state.settings, state.shared, state.settings.factor
    bound = np.nan
    if s.bound and len(state.bounds) == s.n_clients:
        own = (
            0.0
            if s.model == "none"
            else float(np.mean([shared.bound(state.parameters, e, v) for e, v in zip(state.eps, state.values)]))
        )
        bound = own + sum(state.bounds[k] for k in range(s.n_clients)) + (0.0 if s.model == "power" else state.loglik)
    parameters, optimiser = state.parameters, state.optimiser
    if shared.block.size:
        g = np.zeros(len(parameters))
        for e, v, slope, scale in zip(state.eps, state.values, slopes, scales):
            g += shared.gradient(parameters, e, v, f * float(slope), f * float(scale))
        optimiser, change = OPTIMISERS[s.optimiser](s.rate(state.round)).update(optimiser, g / s.draws)
        parameters = parameters + change
        if not np.isfinite(parameters).all():
            raise NumericalError(
                f"server, round {state.round}: q(b, log sigma) left the finite numbers; lower algorithm.learning_rate"
            )
    trajectory = state.trajectory.add(parameters) if s.average == "half" else state.trajectory
    return evolve(
        state, parameters=parameters, optimiser=optimiser, trajectory=trajectory, bound=bound, round=state.round + 1, bounds={}
    )


# Checkpoints --------------------


def save(state: Server | Client) -> Saved:
    """The state as named arrays and numbers; rows are never among them. Draws are made again from their counters."""
    saved: Saved = {"round": state.round, "parameters": state.parameters, "optimiser": state.optimiser} | state.trajectory.save()
    if isinstance(state, Client):
        saved |= {"step": state.step, "residual": state.residual, "begun": int(bool(state.drawn))}
        return saved | ({"own": np.stack(state.own)} if state.own else {})
    return saved | {"phase": int(state.phase == "likelihood"), "Z": state.Z, "eps": state.eps, "values": state.values}


def load(fresh: Any, saved: Mapping[str, Any]) -> Any:
    """A fresh state as it was when it was saved."""
    same = {"round": saved["round"], "parameters": saved["parameters"], "optimiser": saved["optimiser"]}
    same["trajectory"] = Trajectory.load(saved)
    if isinstance(fresh, Client):
        begun = saved["begun"] and saved["round"] < fresh.settings.rounds
        step = saved["step"] - (fresh.settings.draws if begun else 0)
        state = evolve(fresh, **same, step=step, residual=saved["residual"])
        state = _drawn(state)[0] if begun else evolve(state, step=saved["step"])
        return evolve(state, own=tuple(saved.get("own", ())))
    phase = "likelihood" if saved["phase"] else "z"
    return evolve(fresh, **same, phase=phase, Z=saved["Z"], eps=saved["eps"], values=saved["values"])


def protocol(settings: Settings) -> Protocol:
    """The protocol with only the messages that a job of these settings can send."""
    power, shared = settings.model == "power", settings.response == "shared"
    down = (Begin, PredictorSum, LikelihoodSum) if power else (Begin, PredictorSum) if shared else (Begin, Residual)
    up: tuple[type[Message], ...] = (ZShare, LikelihoodShare) if power else (ZShare,)
    up = (*up, BoundShare) if settings.bound else up
    return Protocol("vertical", down, up, server_receive, client_receive, finished, save, load)
