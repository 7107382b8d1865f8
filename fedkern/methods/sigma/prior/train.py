"""Runs `fedkern sigma train PRIOR.toml`: from a prior file to a prior artifact, its fit report and files for `--resume`."""

from __future__ import annotations

import argparse
import io
import json
import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from scipy.linalg import eigvalsh
from threadpoolctl import threadpool_limits

from ....algorithms.core.messages import SERVER
from ....algorithms.training import training as training
from ....algorithms.training.fit import Federation, digest_of, match_variances
from ....arrays import Array
from ....data import artifact
from ....errors import JobError, LostPeer
from ....ground import Ground
from ....jobs import devices, machine
from ....jobs.devices import ON_HOST, Used
from ....jobs.files import RunFolder, write_atomically
from ....jobs.locks import one_job
from ....jobs.naming import faults as faults_of_names
from ....jobs.progress import Progress
from ....jobs.run import Output
from ....kernels.mlp import Architecture
from ....kernels.spatial import DrawTable
from ....models.spatial.decoder import Decoder
from ....models.spatial.loadings import of_decoders
from ....models.spatial.prior import AreaPrior, Prior
from ....models.spatial.start import condition_nodes, multiplicative_start
from ....printing import printable, printable_lines
from ....results.plain import plain
from ....transports.driver import Signals
from ....transports.inprocess import InProcess
from . import fit, pairs
from .keys import PriorConfig, load
from .report import Fit
from .source import Source, read, with_memory

DEVICES = ("cpu", "cuda")  # by their number in a checkpoint
KEPT_EVERY = 60.0  # seconds between checkpoints
LARGE = 200_000  # parameters
AUTO_NODES = 4  # values of phi at which gamma = "auto" looks
LEAST_VARIANCE, MOST_VARIANCE = 0.04, 0.64
NODES = {"gp": 24, "map": 12}  # values of phi at which an analytic start knows the best factors


def command(options: argparse.Namespace) -> int:
    """Runs `fedkern sigma train` and returns the exit code."""
    config, folder = load(options.prior, options.sets)
    out = Path(options.out or Path("runs") / Path(options.prior).stem)
    report = perform(config, folder, Output(out, resume=options.resume, quiet=options.quiet))
    if not options.quiet:
        print(printable_lines(fit.text(report)))
        print(f"{out / 'manifest.json'}\ngive the server {out / 'server.npz'}, and each client its file of {out / 'clients'}")
    return 0


@dataclass(frozen=True)
class Training:
    """Holds a training whose folder is locked."""

    config: PriorConfig
    source: Source
    out: Path  # the artifact's folder
    workshop: RunFolder  # the folder in it with the files for `--resume`
    quiet: bool  # whether it shows no progress and no notes
    used: Used = ON_HOST  # where its steps run

    @property
    def architecture(self) -> Architecture:
        """The architecture of all networks."""
        return self.source.architecture(self.config)


def perform(config: PriorConfig, folder: Path, output: Output) -> Fit:
    """Trains a prior and writes its artifact. Raises JobError: bad data, a folder that holds another artifact, or a file that
    cannot be written. Raises LostPeer: stopped by a signal; there is a checkpoint. Raises NumericalError: the objective is not
    finite; the last good parameters are kept.

    Parameters
    ----------
    config : of the prior file, whose paths are relative to `folder`
    output : the artifact's folder; whether to go on from the checkpoint in it

    Returns
    -------
    how well the networks stand in for the prior
    """
    source = with_memory(read(config, folder))
    if wrong := list(faults_of_names(source.clients, "data.client")):
        raise JobError("; also ".join(wrong))
    assert output.folder is not None
    ground = Ground(output.folder)
    workshop = RunFolder(output.folder / "training", (), job=(config.identity + shape_of(source)).encode(), ground=ground)
    with one_job(workshop.path, "a prior's training", ground):
        used = devices.used(config.training.device, InProcess(), [0])
        with devices.guarded(used.home, "training.batch or training.table"):
            return _perform(Training(config, source, output.folder, workshop, output.quiet, used), resume=output.resume)


def _perform(job: Training, *, resume: bool) -> Fit:
    """Does the work of `perform`, once the folder is locked."""
    state = _claim(job, resume=resume)
    for note in () if job.quiet else job.source.notes:
        print(f"fedkern: {printable(note)}", file=sys.stderr)
    job = replace(job, source=replace(job.source, prior=_with_eigen(job.source.prior, job.workshop)))
    with threadpool_limits(1, user_api="blas"):
        gamma = gamma_of(job.config, job.source) if state is None else state.gamma
    settings = settings_of(job.config, job.architecture, gamma)
    state = start(job.config, job.source, settings) if state is None else state
    with threadpool_limits(1, user_api="blas"):  # the bits of its products depend on its threads; the kernel's own do not
        state = _train(job, settings, state)
    return finish(job, state)


def gamma_of(config: PriorConfig, source: Source) -> float:
    """Returns the networks' standard deviation before the first step.

    With "auto" gamma^2 is the mean of the eigenvalues of the standardised covariance beyond as many as there are latents, over
    the range of phi, and from 0.04 to 0.64: the best linear factors of fewer directions leave that much of each area.
    """
    gamma = config.network.gamma
    if not isinstance(gamma, str):
        return float(gamma)
    if gamma == "learn":
        return 0.5
    prior, sd, architecture = source.prior, source.sd(config), source.architecture(config)
    held, left = architecture.n_global + sum(architecture.n_local), list[float]()
    for phi in condition_nodes(prior.condition, AUTO_NODES)[0]:
        values = eigvalsh(prior.covariance(float(phi)) / np.outer(sd, sd))
        left.append(float(values[: max(prior.n - held, 0)].sum()) / max(prior.n - held, 1))
    return math.sqrt(min(max(LEAST_VARIANCE, float(np.mean(left))), MOST_VARIANCE))


def settings_of(config: PriorConfig, architecture: Architecture, gamma: float) -> training.Settings:
    """Returns the settings of the training loop.

    Large networks take few steps a call of a processor, so that a signal is soon seen; on a card a hundred take half a second,
    and a call begins with its arrays copied and its launches put together.
    """
    slow = architecture.n_parameters >= LARGE and config.training.device == "cpu"
    t, learn = config.training, config.network.gamma == "learn"
    longest = 5 if slow else 100
    return training.Settings(
        steps=t.steps,
        batch=t.batch,
        learning_rate=t.learning_rate,
        decay=t.decay,
        warmup=t.warmup,
        clip=t.clip,
        gamma=gamma,
        learn_gamma=learn,
        seed=t.seed,
        precision=t.precision,
        refresh=t.refresh,
        chunk=min(longest, max(t.steps // 50, 1)),
        threads=t.threads or machine.cores(),
    )


def start(config: PriorConfig, source: Source, settings: training.Settings) -> training.State:
    """Returns the state before the first step: random weights, or the best linear factors."""
    architecture = source.architecture(config)
    state = training.start(architecture, settings)
    if config.network.start == "random":
        return state
    prior, sd = source.prior, source.sd(config)

    def standardised(phi: float) -> Array:
        return prior.covariance(phi) / np.outer(sd, sd)

    kind = "gp" if prior.kind == "gp" else "map"
    phi, seen = condition_nodes(prior.condition, NODES[kind])
    parameters = multiplicative_start(architecture, standardised, phi, seen, gamma=settings.gamma, seed=settings.seed)
    return replace(state, parameters=parameters.astype(settings.precision))


def tables(source: Source, config: PriorConfig) -> Callable[[int], DrawTable]:
    """Returns a function of numbers that makes tables of draws as the networks see them: standardised, phi as their condition."""
    t, sd = config.training, source.sd(config)

    def numbered(number: int) -> DrawTable:
        table = source.prior.table(t.table, t.seed + number)
        if isinstance(t.draws, int):
            table = training.stored(table, t.draws, t.seed + number)
        return replace(table, phi=source.prior.condition.network(table.phi), scale=table.scale / sd)

    return numbered


def finish(job: Training, state: training.State) -> Fit:
    """Computes tau^2, the fit, the artifact's files and the report, from trained networks."""
    config, source, out = job.config, job.source, job.out
    architecture = job.architecture
    federation = Federation(architecture, state.parameters.astype(np.float64), source.prior.condition, source.sd(config))
    # Measure the networks in float64, as jobs compute with them.
    a, seed = config.auxiliary, config.training.seed
    tau = match_variances(source.prior, federation, by=a.by, floor=a.floor, ceiling=a.ceiling, draws=a.draws, seed=seed)
    report = fit.measure(config, source, fit.Trained(federation, tau, state, tables(source, config)(0)))
    name = digest_of({"parameters": state.parameters, "identity": config.identity, "map": shape_of(source), "steps": state.step})
    common = artifact.Common(
        id=name,
        kind=config.prior.kind,
        condition=source.prior.condition,
        variant=config.network.variant,
        n_global=architecture.n_global,
        hidden=architecture.hidden,
        local_hidden=architecture.local_hidden,
        width=architecture.width,
        rank=architecture.rank,
        gamma=state.gamma,
    )
    clients = []
    for j, client in enumerate(source.clients):
        part = slice(int(federation.ends[j]), int(federation.ends[j + 1]))
        locations = None if source.locations is None else source.locations[j]
        clients.append(
            artifact.ClientFile(
                common=common,
                name=client,
                index=j,
                n_local=architecture.n_local[j],
                scale=federation.sd[part],
                parts=federation.parts(j),
                tau2=tau.tau2[:, part],
                tau_grid=tau.grid,
                true_variance=tau.prior[part],
                areas=source.areas[j],
                locations=locations,
                pairs=source.pairs(j),
                islands=source.islands(j),
            )
        )
    put = partial(write_atomically, ground=job.workshop.ground(out))
    put(out / "fit.json", json.dumps(plain(report.as_dict()), indent=1, allow_nan=False).encode() + b"\n")
    put(out / "prior.json", json.dumps(plain(config.model_dump()), indent=1, allow_nan=False).encode() + b"\n")
    for file, drawn in pairs.files(source.map).items():
        put(out / file, drawn)
    page = fit.page(report, config)
    if page is not None:
        put(out / "report.html", page.encode())
    decoders = [Decoder(file.architecture, file.parts, file.scale) for file in clients]
    loadings, versions = of_decoders(decoders, common.condition), machine.of_a_run() | dict(job.used.versions)
    of_map: dict[str, Any] = {"doubts": source.doubts, "by_position": source.by_position}
    errors = [(float(comparison.phi), comparison.mean_error) for comparison in report.comparisons]
    artifact.write(out, common, clients, errors=errors, mean_loadings=loadings, **of_map, versions=versions, put=put)
    return report


def shape_of(source: Source) -> str:
    """Returns a digest of the map or the points, by which a checkpoint of others is refused."""
    parts: dict[str, Any] = {"clients": source.clients, "sizes": source.sizes, "areas": source.areas}
    if source.graph is not None:
        parts |= {"indptr": source.graph.indptr, "indices": source.graph.indices}
    for j, x in enumerate(source.locations or ()):
        parts[f"x{j}"] = x
    return digest_of(parts)


def _claim(job: Training, *, resume: bool) -> training.State | None:
    """Returns the state to go on from; JobError where a folder's content would be overwritten, or none can be resumed."""
    config, out, workshop = job.config, job.out, job.workshop
    numbers, finished = workshop.numbers(SERVER, "sigma"), (out / "manifest.json").exists()
    if not resume:
        if finished or numbers:
            what = "a finished prior" if finished else "an interrupted training; --resume goes on with it"
            raise JobError(f"{out}: holds {what}; to start anew choose another --out")
        return None
    if not numbers:
        raise JobError(f"{out}: --resume: no checkpoint of a training is there; run without --resume")
    for number in reversed(numbers):
        try:
            saved = workshop.kept(SERVER, "sigma", number)
            state = training.State.load(saved, config.training.precision)
        except ValueError:  # cut short: the one before it is whole
            continue
        if (kind := DEVICES[int(saved.get("device", 0))]) != config.training.device:
            raise JobError(
                f'{out}: this training began with training.device = "{kind}", and its bits are of that: resume it with --device '
                f"{kind}, or train anew in another --out"
            )
        if state.step >= config.training.steps and finished:
            raise JobError(f"{out}: this training has finished after {state.step} steps; for more of them raise training.steps")
        return state
    raise JobError(f"{workshop.path}: no checkpoint is whole; train anew in another --out")


def _with_eigen(prior: Prior, workshop: RunFolder) -> Prior:
    """Returns a map's prior with its eigenvectors, read from the file of an earlier run or written to it."""
    if not isinstance(prior, AreaPrior):
        return prior
    path, state = workshop.path / "eigen.npz", blake2b(prior.form.encode(), digest_size=32)
    for array in (prior.indptr, prior.indices):
        state.update(array.tobytes())
    try:
        with np.load(path, allow_pickle=False) as saved:
            if saved["digest"].tobytes() == state.digest():
                return prior.with_eigen((saved["values"], saved["vectors"]))
    except (OSError, ValueError, KeyError, EOFError):
        pass  # none yet, or one that is not whole: it is made again
    values, vectors = prior.eigen
    stream = io.BytesIO()
    np.savez(stream, digest=np.frombuffer(state.digest(), dtype=np.uint8), values=values, vectors=vectors)
    workshop.write(path, stream.getvalue())
    return prior


def _train(job: Training, settings: training.Settings, state: training.State) -> training.State:
    """Runs the loop, with progress, checkpoints and signals."""
    workshop, draws = job.workshop, tables(job.source, job.config)
    saved, last = time.monotonic(), state.step

    def keep(state: training.State) -> None:
        nonlocal saved, last
        number = max(workshop.numbers(SERVER, "sigma"), default=0) + 1
        workshop.keep(SERVER, "sigma", number, state.save() | {"device": DEVICES.index(job.config.training.device)})
        saved, last = time.monotonic(), state.step

    with Signals() as signals, Progress(settings.steps, quiet=job.quiet, unit="step") as progress:

        def report(state: training.State) -> bool:
            progress.show(state.step, f"ELBO {state.curve[-1, 1]:.4g}")
            if time.monotonic() - saved > KEPT_EVERY:
                keep(state)
            return signals.pending is not None

        try:
            state = training.train(job.architecture, draws, settings, state=state, report=report, home=job.used.home)
        except training.Diverged as error:
            if error.state is not None:
                keep(error.state)
            raise
    if state.step != last:
        keep(state)
    if state.step < settings.steps:
        raise LostPeer(f"stopped by {signals.pending} after {state.step} of {settings.steps} steps; --resume goes on from there")
    return state
