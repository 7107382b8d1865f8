"""Releases z of a vertical job with differential privacy: a client's messages hide the values of one row of its columns.

Neighbours are two versions of one client's columns that differ in the values of one row; row ids, the number of rows, the
response and everything of other parties are the same. (So each client's promise is about its own columns. Where several clients
hold values of one person, the promise about all of them together has mu^2 = sum_j 8 T / sigma_j^2 in Gaussian differential
privacy.) Two noisy sums leave the rows in each iteration:

1. z, sent: every z_i clipped to [-C_z, C_z], Gaussian noise on each. One row moves one element, by at most 2 C_z.
2. V = sum_i clip(h_i (z_i - g_i)/rho^2, C_g) plus Gaussian noise, never sent: q(theta) learns from it in place of H'(z -
   g)/rho^2. One row moves it by at most 2 C_g in Euclidean norm.

Why this suffices. Call the released z, the noisy V and the server's messages so far the transcript. Claim: given the transcript,
each of the two sums above is a function in which row i enters through its own term alone. By induction over iterations:

* q(theta), its optimiser and its average over rounds are functions of V, of eps (keyed, public) and of the prior: of the
  transcript. The step multiplies V by eps and adds path terms of the scale of q(theta); it touches no row.
* Mean and log sd of z_i, and their columns of the optimiser's state, are updated from x_i, z_i, tau_i (keyed, public), theta
  and the i-th number of the server's message: of the transcript and of row i. The optimisers work element by element.
* z_i = mean_i + exp(log sd_i) tau_i and g_i = h_i' theta are therefore functions of the transcript and of row i.

So, given the transcript, each release is a Gaussian mechanism of sensitivity 2 C, and the server may choose its messages as it
likes: T rounds are the adaptive composition of 2T of them (T of z, T of V). The response, and the messages r that show it, are
not protected. The server uses the released z; the client's own terms use its own z, which stays with row i. q(theta) may be
published after the job; mean and log sd of z are the client's alone, and nothing that is computed from them may leave.

Settings that would break the claim are refused, with the reason (`refusal`): a global gradient clip (the norm over all rows
scales every row), a closed-form theta, amortised z and networks (their weights meet all rows in gradients that are not clipped
here; rbar), the power-likelihood (its messages are not clipped), batches, several draws or local steps (more releases than are
charged), and the trace of the bound. Columns must be scaled by public constants: a mean or a standard deviation of the rows moves
all rows. Rows with numbers that are not finite, or of a norm beyond 1e6, count as rows of zeros, and a row's own update is
bounded, so that nothing that a row holds can change the flow of the job. Noise is exact discrete Gaussian on a grid of 2^-20 of
the clip.

It is expensive: at epsilon = 3 and delta = 1e-5 the noise on every z_i has 12 C_z in 10 rounds, and 56 C_z in 200.

The releases are charged before rows are read: 1 at the start, 2 in each round (1 in the last). A charge that is refused ends the
job with the answer `Refused`, which says how much this job has spent. Source: pvi.md, sections 4 and 6; vertical.md, sections 5
and 11.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ...arrays import Matrix, Vector
from ...errors import NumericalError
from ...kernels import augmented
from ...models.likelihood import Likelihood
from ...models.split.predictors import Linear
from ...models.split.site import Site
from ...privacy.accountant import Mechanism
from ...privacy.noise import Source
from ..core.kept import GIVEN
from ..core.messages import Charge, Charged, ChargeFailed, ClientEffects, Event, Refused, RemoteFault, evolve
from ..core.optim import OPTIMISERS
from . import client as plain
from .messages import Begin, PredictorSum, Residual, Settings, ZShare

Question = Begin | PredictorSum | Residual
Integers = NDArray[np.int64]

LARGEST_ROW = 1e6  # Euclidean norm of a row's covariates; larger ones count as zeros
LARGEST_LOG_SD = 20.0
LARGEST = 1e12  # of a row's message and gradient


def mechanism(n_rows: int, n_columns: int, noise_multiplier: float | None, *, secure: bool = True) -> Mechanism:
    """Returns the mechanism of one release of a client, for either of the two sums: noise over clip is the same number for both.

    The holder's budget charges by it; a round is two steps of it.
    """
    return Mechanism(
        sampling="aligned", clip=1.0, dimension=max(n_rows, n_columns), noise_multiplier=noise_multiplier, dataset_size=n_rows,
        secure=secure,
    )  # fmt: skip


def releases(rounds: int) -> int:
    """Returns the accounted steps of a job: T of z and T of V."""
    return 2 * rounds


@dataclass(frozen=True)
class Release:
    """Releases a client's sums."""

    mechanism: Mechanism  # of `mechanism`
    clip_z: float  # bound on every |z_i|, in units of the linear predictor
    clip_gradient: float  # bound on the norm of a row's part of H'(z - g)/rho^2
    source: Source  # of noise

    @cached_property
    def of_z(self) -> Mechanism:
        """The mechanism of the release of z: the same noise, its own bound and length."""
        assert self.mechanism.dataset_size is not None
        return replace(self.mechanism, clip=self.clip_z, dimension=self.mechanism.dataset_size)

    def of_gradient(self, n_columns: int) -> Mechanism:
        """Returns the mechanism of V."""
        return replace(self.mechanism, clip=self.clip_gradient, dimension=n_columns)

    def z(self, z: Vector, step: int) -> Vector:
        """Returns z as it may leave."""
        m = self.of_z
        return m.release(self.source, on_grid(np.clip(np.nan_to_num(z), -m.clip, m.clip), m), step)

    def gradient(self, rows: Matrix, step: int) -> Vector:
        """Returns the noisy sum of the clipped rows."""
        m = self.of_gradient(rows.shape[1])
        return m.release(self.source, clipped_sum(rows, m), step)


def on_grid(values: Vector, mechanism: Mechanism) -> Integers:
    """Returns values within the clip, rounded toward zero to multiples of the grid."""
    scaled: Vector = values * ((1 - 1e-9) / mechanism.grid)
    return np.trunc(scaled).astype(np.int64)


def clipped_sum(rows: Matrix, mechanism: Mechanism) -> Integers:
    """Returns the sum of the rows, each scaled to a norm of at most the clip and rounded toward zero to the grid.

    A row whose norm is not finite counts as zeros.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        norm = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    good = np.isfinite(norm)
    factor = np.minimum(1.0, mechanism.clip / np.maximum(np.where(good, norm, 1.0), 1e-300))
    scaled = np.where(good[:, np.newaxis], rows, 0.0) * factor[:, np.newaxis]
    total: Integers = on_grid(scaled, mechanism).sum(axis=0, dtype=np.int64)
    return total


def refusal(settings: Settings, site: Site) -> str | None:
    """Returns why a job has no private form, or None if it has one."""
    if settings.model != "augmented":
        return f"model = {settings.model!r}: only the augmented model has messages of bounded sensitivity here"
    if site.auxiliary.kind != "mean-field":
        return f"family = {site.auxiliary.kind!r}: a network's weights meet all rows; take the mean-field family"
    if not isinstance(site.predictor, Linear):
        return f"a {type(site.predictor).__name__.lower()} predictor: its gradients are not clipped row by row; take a linear one"
    for name, wanted, reason in (
        ("batch", None, "the charge is for releases of all rows"),
        ("draws", 1, "each draw is one release more than is charged"),
        ("local_steps", 1, "each step is one release more than is charged"),
        ("bound", False, "terms of the bound are a sum over rows that is neither clipped nor noisy"),
    ):
        if getattr(settings, name) != wanted:
            return f"{name} = {getattr(settings, name)!r}: {reason}; it must be {wanted!r}"
    return None


@dataclass(frozen=True)
class PrivateClient(plain.Client):
    """Is the state of a client whose messages are private."""

    release: Release = field(kw_only=True, metadata=GIVEN)  # clips and noise
    count: int = 0  # its own count of releases, the step of keyed noise
    asked: Question | None = field(default=None, metadata=GIVEN)  # the question whose charge is being made
    refused: bool = False  # its budget is spent


def client(
    name: str,
    index: int,
    settings: Settings,
    site: Site,
    release: Release,
    y: Vector | None = None,
    likelihood: Likelihood | None = None,
    sd: float = 0.1,
) -> PrivateClient:
    """Returns a private client before the first round; the other arguments are those of `client.client`. Raises ValueError: the
    job has no private form, or the mechanism is not that of these rows."""
    if reason := refusal(settings, site):
        raise ValueError(f"client {name!r}: a private vertical job can't have {reason}")
    assert isinstance(site.predictor, Linear)
    n, p = site.predictor.H.shape
    if (release.mechanism.sampling, release.mechanism.dataset_size) != ("aligned", n) or release.mechanism.dimension < max(n, p):
        raise ValueError(f"client {name!r}: the mechanism must be that of `mechanism({n}, {p}, ..)`, got {release.mechanism}")
    if not (0 < release.clip_z < np.inf and 0 < release.clip_gradient < np.inf):
        raise ValueError(f"client {name!r}: clips must be positive and finite, got {release.clip_z} and {release.clip_gradient}")
    site = replace(site, predictor=replace(site.predictor, H=cleaned(site.predictor.H)))
    base = plain.client(name, index, settings, site, y, likelihood, sd)
    return PrivateClient(**vars(base), release=release)


def cleaned(H: Matrix) -> Matrix:
    """Returns rows unchanged, but zeros for those that are not finite or too large: a function of each row alone."""
    with np.errstate(over="ignore", invalid="ignore"):
        norm = np.sqrt(np.einsum("ij,ij->i", H, H))
    good = norm <= LARGEST_ROW  # also not NaN
    return np.where(good[:, np.newaxis], H, 0.0)


def client_receive(state: PrivateClient, event: Event) -> tuple[PrivateClient, ClientEffects]:
    """Makes a charge at a question; once the charge is on the disk it reads rows and answers. Raises NumericalError: q(theta),
    which only ever sees noisy sums, left the finite numbers. Raises RemoteFault: an event that this job does not have, or of
    another round."""
    s = state.settings
    if isinstance(event, Charged | ChargeFailed) and state.asked is not None:
        question, after = state.asked, evolve(state, asked=None)
        missing = question.round + int(bool(state.drawn))  # the round that this client's z will not be part of
        if isinstance(event, ChargeFailed):
            return evolve(after, refused=True), [Refused(missing, event.spent)]
        if event.steps < _steps(state, question):  # a budget that grants a part: no part of a round is of use
            return evolve(after, refused=True), [Refused(missing, state.count)]
        state.release.source.rekey()
        return _drawn(after) if isinstance(question, Begin) else _stepped(after, question)
    expected: type[Begin | PredictorSum | Residual] = Begin
    if state.drawn:
        expected = PredictorSum if s.response == "shared" else Residual
    if not isinstance(event, expected) or event.round != state.round or state.asked is not None or state.refused:
        came = f"{type(event).__name__} of round {getattr(event, 'round', None)}"
        raise RemoteFault(f"server: {came}, expected {expected.__name__} of round {state.round}")
    return evolve(state, asked=event), [Charge(_steps(state, event), event.round)]


def _steps(state: PrivateClient, question: Question) -> int:
    """Returns the number of releases that answer a question."""
    return 1 if isinstance(question, Begin) or state.round + 1 == state.settings.rounds else 2


def _drawn(state: PrivateClient) -> tuple[PrivateClient, ClientEffects]:
    """Makes the joint draw of this round, and sends z clipped and noisy."""
    state, _ = plain._drawn(state)
    noisy = state.release.z(state.drawn[0].z, state.count)
    return evolve(state, count=state.count + 1), [ZShare(state.round, noisy[np.newaxis])]


def _stepped(state: PrivateClient, event: Residual | PredictorSum) -> tuple[PrivateClient, ClientEffects]:
    """Takes a step of q(theta) from the noisy sum and of each row's q(z_i) from that row, and the next draw."""
    s, site, drawn = state.settings, state.site, state.drawn[0]
    # Every row's numbers are bounded: none that a row holds may change the flow of the job.
    slopes = event.r[0] if isinstance(event, Residual) else plain._slopes(state, event)[0]
    message = np.clip(slopes, -LARGEST, LARGEST)
    parts, rho = site.parts, site.auxiliary.rho
    # Rows' gradients are clipped and get their noise before they are used at all.
    total = state.release.gradient(drawn.H * ((drawn.z - drawn.g) / rho**2)[:, np.newaxis], state.count)
    c = total + site.predictor.grad_prior(drawn.theta)
    head = site.block.gradient(state.parameters[parts["theta"]], drawn.eps, c, path=site.path)
    log_sd = state.parameters[parts["log_sd"]]
    _, _, *rows = augmented.mean_field_gradient(drawn.H, drawn.g, drawn.z, drawn.tau, log_sd, message, rho=rho, path=site.path)
    gradient = np.concatenate([head, *(np.clip(np.nan_to_num(row), -LARGEST, LARGEST) for row in rows)])
    optimiser, change = OPTIMISERS[s.optimiser](s.rate(state.round)).update(state.optimiser, gradient)
    parameters = state.parameters + change
    if not np.isfinite(parameters[parts["theta"]]).all():
        raise NumericalError(
            f"client {state.name!r}, round {state.round}: q(theta) left the finite numbers; lower algorithm.learning_rate, or "
            "the gradient's clip, in proportion to which noise is added"
        )
    # Parameters of rows are cut, never refused: the end of the job would tell of a row.
    for name, bound in (("mean", LARGEST_ROW), ("log_sd", LARGEST_LOG_SD)):
        parameters[parts[name]] = np.clip(np.nan_to_num(parameters[parts[name]]), -bound, bound)
    trajectory = state.trajectory.add(parameters) if s.average == "half" else state.trajectory
    windows = plain.watched(state, parameters)
    state = evolve(state, parameters=parameters, optimiser=optimiser, trajectory=trajectory, windows=windows)
    state = evolve(state, round=state.round + 1, count=state.count + 1)
    return _drawn(state) if state.round < s.rounds else (state, [])
