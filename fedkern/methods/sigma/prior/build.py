"""Runs `fedkern sigma build PRIOR.toml`: from a prior file to an artifact whose prior is exact inside each client.

Nothing is trained: the factors that tie the clients together are found in closed form (`models.spatial.factors`).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from ....algorithms.training.fit import digest_of
from ....data import artifact
from ....errors import JobError
from ....ground import Ground
from ....jobs import machine, memory
from ....jobs.files import write_atomically
from ....jobs.locks import one_job
from ....jobs.naming import faults as faults_of_names
from ....jobs.run import Output
from ....models.spatial.factors import MOST, Cost, Division, Tied, enough, tie
from ....models.spatial.loadings import of_within
from ....models.spatial.prior import AreaPrior, MixedPrior
from ....printing import printable, printable_lines
from ....results.plain import Record, plain
from . import pairs
from .keys import ABOVE, PriorConfig, load
from .source import Source, read
from .train import shape_of

TIMED = 700  # rows and columns of a matrix whose square shows how fast a machine is
EFFICIENCY = 0.45  # of what is not all matrix products, measured on the large map of benchmarks/sigma_within.py
EXACT = 100  # areas on borders up to which a shared number for each costs little, and nothing is missed between clients
LEAST_OTHERS = 3  # unknowns of a job beside those that tie clients: intercept, sigma_theta, phi


@dataclass(frozen=True, eq=False)
class Built:
    """Holds a built prior and its source."""

    config: PriorConfig
    source: Source
    tied: Tied

    @property
    def latents(self) -> int:
        """The number of values that all clients share."""
        return self.tied.clients[0].n_latents

    @property
    def notes(self) -> tuple[str, ...]:
        """The notes for a user."""
        wanted, most = self.config.within, float(self.tied.errors.max())
        if wanted.latents != "auto" or most <= ABOVE * wanted.error:
            return self.source.notes
        return (*self.source.notes, _of_error(self.latents, self.tied.n_borders, most, wanted.error))

    def as_dict(self) -> Record:
        """Returns the content of fit.json."""
        source, tied = self.source, self.tied
        return {
            "kind": source.prior.kind,
            "condition": source.prior.condition.name,
            "clients": dict(zip(source.clients, source.sizes)),
            "latents": self.latents,
            "borders": tied.n_borders,
            "error": [{"phi": float(phi), "error": float(error)} for phi, error in zip(tied.phi, tied.errors)],
            "notes": list(self.notes),
        }

    def describe(self) -> Iterator[str]:
        """Yields lines for the terminal."""
        source, tied, name = self.source, self.tied, self.source.prior.condition.name
        yield (
            f"{source.prior.n:,} areas of {len(source.clients)} clients, {tied.n_borders:,} of them on borders: exact inside "
            f"each client, {self.latents} numbers tie them together"
        )
        errors = ", ".join(f"{error:.3g} at {name} {phi:.3g}" for phi, error in zip(tied.phi, tied.errors))
        yield f"posterior means are off by {errors}, relative to those of independent areas (one noisy row each)"
        yield from (f"note: {note}" for note in self.notes)


def command(options: argparse.Namespace) -> int:
    """Runs `fedkern sigma build` and returns the exit code."""
    config, folder = load(options.prior, options.sets)
    out = Path(options.out or Path("runs") / Path(options.prior).stem)
    built = perform(config, folder, Output(out, quiet=options.quiet))
    if not options.quiet:
        print(printable_lines("\n".join(built.describe())))
        print(f"{out / 'manifest.json'}\ngive the server {out / 'server.npz'}, and each client its file of {out / 'clients'}")
    return 0


def perform(config: PriorConfig, folder: Path, output: Output) -> Built:
    """Builds a prior and writes its artifact. Raises JobError: bad data, a kind without factors in closed form, or a folder that
    holds another artifact. Raises NumericalError: a client's block that cannot be factored, with its phi.

    Parameters
    ----------
    config : of the prior file, whose paths are relative to `folder`
    output : the artifact's folder

    Returns
    -------
    the built prior
    """
    assert output.folder is not None
    if (output.folder / "manifest.json").exists():
        raise JobError(f"{output.folder}: holds a finished prior; to start anew choose another --out")
    source = whole(read(config, folder))
    if wrong := list(faults_of_names(source.clients, "data.client")):
        raise JobError("; also ".join(wrong))
    for note in () if output.quiet else source.notes:
        print(f"fedkern: {printable(note)}", file=sys.stderr)
    w = config.within
    with one_job(output.folder, "a prior"), threadpool_limits(1, user_api="blas"):
        division = Division(source.prior, source.sizes, source.clients)
        latents = max(division.n_borders, 1)
        if w.latents != "auto":
            latents = min(latents, int(w.latents))
        elif latents > EXACT:
            latents = enough(division, w.error)
        for line in ahead(division.n_borders, latents, w.values):
            if not output.quiet:
                print(f"fedkern: {line}", file=sys.stderr)
        tied = tie(source.prior, source.sizes, source.clients, n_latents=latents, nodes=w.values)
        built = Built(config, source, tied)
        _write(built, output.folder)
    return built


def ahead(n_borders: int, latents: int, values: int) -> Iterator[str]:
    """Yields what a build takes and a job will send, before either; JobError where a machine has too little memory."""
    cost = Cost.of(n_borders, latents, values)
    if cost.memory > memory.available():
        raise JobError(
            f"{latents:,} numbers that tie {n_borders:,} areas on borders take about {memory.size(cost.memory)} of memory; this "
            f"machine has {memory.size(memory.available())}; take fewer (within.latents), or a larger within.error"
        )
    if cost.memory >= memory.SILENT:
        seconds = cost.operations / (EFFICIENCY * _rate())
        took = f"{seconds / 60:.0f} min" if seconds >= 90 else f"{max(seconds, 1):.0f} s"
        begin = f"{latents:,} numbers tie {n_borders:,} areas on borders"
        yield f"{begin}: building takes about {memory.size(cost.memory)} of memory and {took} of a core"
        sent = latents + LEAST_OTHERS
        yield f"in a job each client sends at least {sent:,} numbers a round ({memory.size(memory.NUMBER * sent)})"


def _rate() -> float:
    """Measures operations of a matrix product in a second."""
    A = np.ones((TIMED, TIMED))
    began = time.process_time()
    for _ in range(2):
        A @ A
    return 4 * TIMED**3 / max(time.process_time() - began, 1e-6)


def whole(source: Source) -> Source:
    """Returns the source, BYM2 with its unstructured part; JobError where a machine cannot hold the covariance of all areas."""
    prior = source.prior
    if not isinstance(prior, AreaPrior) or prior.form != "bym2":
        return source
    if (taken := memory.eigenvectors(prior.n)) > memory.available():
        raise JobError(
            f'prior.kind = "bym2": the covariance of {prior.n:,} areas is dense, and takes about {memory.size(taken)} of memory; '
            f'this machine has {memory.size(memory.available())}; take a larger one, or "leroux", whose precision is sparse'
        )
    return replace(source, prior=MixedPrior(prior))


def _write(built: Built, out: Path) -> None:
    """Writes the artifact's files."""
    config, source, tied = built.config, built.source, built.tied
    factors = {f"{what}{j}": getattr(factor, what) for j, factor in enumerate(tied.clients) for what in ("U", "K", "W")}
    name = digest_of({"identity": config.identity, "map": shape_of(source), **factors})
    common = artifact.Common(name, config.prior.kind, source.prior.condition, "within", built.latents)
    variances = np.split(tied.variance, np.cumsum(source.sizes)[:-1])
    locations = source.locations or [None] * len(source.clients)
    clients = [
        artifact.WithinFile(
            common, client, j, tied.clients[j], variances[j], source.areas[j], locations[j], source.pairs(j), source.islands(j)
        )
        for j, client in enumerate(source.clients)
    ]
    put = partial(write_atomically, ground=Ground(out))
    for file, content in (("fit.json", built.as_dict()), ("prior.json", config.model_dump())):
        put(out / file, json.dumps(plain(content), indent=1, allow_nan=False).encode() + b"\n")
    for file, drawn in pairs.files(source.map).items():
        put(out / file, drawn)
    errors = [(float(phi), float(error)) for phi, error in zip(built.tied.phi, built.tied.errors)]
    loadings, versions = of_within(tied.clients), machine.of_a_run()
    of_map: dict[str, Any] = {"doubts": source.doubts, "by_position": source.by_position}
    artifact.write(out, common, clients, errors=errors, mean_loadings=loadings, **of_map, versions=versions, put=put)


def _of_error(latents: int, n_borders: int, most: float, wanted: float) -> str:
    """Returns the note on an error that is larger than the one that is asked for, with digits that tell them apart."""
    digits = next((n for n in range(2, 16) if f"{most:.{n}g}" != f"{wanted:.{n}g}"), 16)
    why = "; give within.latents a larger number where that matters"
    if latents >= MOST:
        why = f": no more than {MOST:,} are ever taken"
    elif latents >= n_borders:
        why = f": there are {n_borders} areas on borders, and no more numbers than that"
    return (
        f"the {latents} numbers that tie the clients together leave posterior means off by {most:.{digits}g} of what independent "
        f"areas have, and within.error asks for {wanted:.{digits}g} at most{why}"
    )
