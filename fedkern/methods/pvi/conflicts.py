"""Faults between the keys of a job: each key is valid alone, together they are not."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ...jobs.explain import remedy, unbounded
from ...jobs.naming import faults as faults_of_names
from ...kernels.families import FAMILIES
from ...privacy.accountant import LARGEST_EPSILON, LEAST_CLIP

if TYPE_CHECKING:
    from ...jobs.load import Config, PrivacySection, Terms

SHARDED = ("local-averaging", "virtual-clients")
ONE_SHOT = ("bcm-same", "bcm-split")

# sampling -> the keys that it needs; it may have no other
SAMPLING: dict[str, set[str]] = {
    "poisson": {"sampling_rate"},
    "poisson-truncated": {"sampling_rate", "max_batch", "dataset_size"},
    "without-replacement": {"batch_size", "dataset_size"},
    "full": set(),
    "shards": set(),
}
# the one accountant that knows a sampling, where there is only one
ACCOUNTANT = {"poisson-truncated": "pld", "without-replacement": "rdp"}


def conflicts(config: Config) -> Iterator[str]:
    """Every fault, each a sentence with its remedy."""
    yield from _data(config)
    algorithm, privacy, family = config.algorithm, config.privacy, FAMILIES[config.model.family]
    if "scale" not in config.model.model_fields_set and family.lacks_scale("unknown"):
        yield family.scale_is_missing
    sharded = algorithm.variant in SHARDED
    if sharded and algorithm.shards is None:
        yield f'algorithm.shards is missing: variant = "{algorithm.variant}" needs the public number of shards'
    if sharded and config.data.row_id is None:
        yield f'data.row_id is missing: variant = "{algorithm.variant}" makes shards from a hash of this column'
    if not sharded and algorithm.shards is not None:
        yield f'algorithm.shards is for {" and ".join(SHARDED)}; variant is "{algorithm.variant}"'
    if algorithm.client_weights and algorithm.schedule != "random":
        yield f'algorithm.client_weights are for schedule = "random"; schedule is "{algorithm.schedule}"'
    if config.model.covariance == "full" and algorithm.variant == "global-vi":
        yield 'model.covariance = "full" does not exist with variant = "global-vi"; take "diagonal"'
    if algorithm.variant == "global-vi" and algorithm.optimiser == "exact":
        yield 'algorithm.optimiser = "exact" does not exist with variant = "global-vi"; take adagrad, adam or sgd'
    if algorithm.variant in ONE_SHOT and (algorithm.schedule, algorithm.damping, config.job.rounds) != ("synchronous", 1.0, 1):
        yield f'algorithm.variant = "{algorithm.variant}" is one synchronous round without damping; leave those keys out'
    if privacy is not None:
        yield from _private(config, privacy)
        return
    if sharded:
        yield f'algorithm.variant = "{algorithm.variant}" is for private jobs; take "pvi", or give a [privacy] section'
    if config.job.rounds == "budget":
        yield 'job.rounds = "budget" is for private jobs; give a number, or a [privacy] section'
    if algorithm.optimiser == "exact" and algorithm.batch < 1:
        yield f'algorithm.batch = {algorithm.batch:g}: optimiser = "exact" uses all rows; leave batch out'


def _data(config: Config) -> Iterator[str]:
    data = config.data
    if bool(data.clients) == bool(data.builtin):
        yield "data: wanted either data.clients (files) or data.builtin; give one of them"
    if data.clients and data.response is None:
        yield "data.response is missing: the column to be explained"
    if data.builtin and data.test is not None:
        yield "data.test is for data.clients; of built-in data the server keeps the share data.split.test"
    for name, column in data.columns.items():
        if column.reference is not None:
            yield f'data.columns.{name}.reference is for method = "sparse"; here every level has a coefficient'
    yield from faults_of_names(data.names, "data.names")


def _private(config: Config, privacy: PrivacySection) -> Iterator[str]:
    algorithm = config.algorithm
    if algorithm.batch != 1:
        yield "algorithm.batch is for jobs that are not private; privacy.sampling_rate says how rows enter a step"
    if algorithm.variant in ONE_SHOT:
        yield f'algorithm.variant = "{algorithm.variant}" has no private form; take "pvi", or leave out [privacy]'
    if config.model.covariance == "full":
        yield 'model.covariance = "full" has no private form; take "diagonal"'
    if privacy.unit == "example":
        if algorithm.estimator in ("stl", "total"):
            yield f'algorithm.estimator = "{algorithm.estimator}" has no clipped form; take analytic'
        if algorithm.optimiser == "exact" and algorithm.variant not in SHARDED:
            yield 'algorithm.optimiser = "exact" cannot be private; take adagrad, adam or sgd'
    elif algorithm.variant != "pvi":
        yield f'privacy.unit = "client" is for variant = "pvi"; variant is "{algorithm.variant}"'
    elif privacy.clients:
        yield 'privacy.clients: with unit = "client" one set of terms holds for all; move them to [privacy]'
    if config.data.standardise == "exchange":
        yield 'data.standardise = "exchange" would publish statistics of rows; take "public" with [data.columns], or "none"'
    if (algorithm.variant in SHARDED) != (privacy.sampling == "shards"):
        yield f'privacy.sampling = "{privacy.sampling}" does not fit variant = "{algorithm.variant}"; leave sampling out'
    only = ACCOUNTANT.get(privacy.sampling, privacy.accountant)
    if privacy.unit == "example" and privacy.accountant != only:
        yield f'privacy.accountant = "{privacy.accountant}" does not know sampling = "{privacy.sampling}"; take "{only}"'
    if privacy.calibrate and config.job.rounds == "budget" and algorithm.updates_per_client is None:
        yield "privacy.calibrate = true needs the number of updates: give algorithm.updates_per_client, or a number of job.rounds"
    yield from _missing(privacy)
    yield from _terms(config, privacy, privacy, "privacy")
    for client in sorted(privacy.clients):
        yield from _terms(config, privacy, privacy.of(client), f"privacy.clients.{client}")


def _missing(privacy: PrivacySection) -> Iterator[str]:
    """What neither [privacy] nor the terms of each client give. That these name every client is checked when they are known."""
    need = {"epsilon", "delta", "clip"} | ({"noise_multiplier"} if not privacy.calibrate else set())
    need |= SAMPLING[privacy.sampling] if privacy.unit == "example" else set()
    own = list(privacy.clients.values())
    for name, field in type(privacy).model_fields.items():
        given = [getattr(privacy, name, None)] + [getattr(terms, name, None) for terms in own]
        if name not in need or given[0] is not None or (own and None not in given[1:]):
            continue
        why = f'sampling = "{privacy.sampling}" needs it' if name in SAMPLING[privacy.sampling] else remedy(field)
        why = "or calibrate = true" if name == "noise_multiplier" else why
        yield f"privacy.{name} is missing: {field.description} ({why})"


def _terms(config: Config, privacy: PrivacySection, terms: Terms, where: str) -> Iterator[str]:
    """Faults in the common terms, or in those of one client."""
    if privacy.calibrate and terms.noise_multiplier is not None:
        yield f"{where}.noise_multiplier and privacy.calibrate = true contradict each other; give one of them"
    if terms.epsilon is not None and LARGEST_EPSILON < terms.epsilon < math.inf:
        yield unbounded(f"{where}.epsilon", terms.epsilon)
    if terms.epsilon == math.inf and (privacy.calibrate or config.job.rounds == "budget"):
        yield f'{where}.epsilon = inf: privacy.calibrate = true and job.rounds = "budget" need a finite epsilon'
    if privacy.unit == "example" and terms.clip is not None and terms.clip < LEAST_CLIP:
        yield f"{where}.clip = {terms.clip:g}: on rows wanted at least {LEAST_CLIP:g}; give the columns larger units, or raise it"
    given = {n for n in ("sampling_rate", "batch_size", "dataset_size", "max_batch") if getattr(terms, n) is not None}
    allowed = SAMPLING[privacy.sampling] if privacy.unit == "example" else set()
    for name in sorted(given - allowed):
        scheme = f'sampling = "{privacy.sampling}"' if privacy.unit == "example" else 'unit = "client"'
        yield f"{where}.{name} has no meaning with {scheme}; leave it out"
    if "batch_size" in given and terms.dataset_size is not None and (terms.batch_size or 0) > terms.dataset_size:
        yield f"{where}.batch_size = {terms.batch_size}: wanted at most dataset_size = {terms.dataset_size}"
