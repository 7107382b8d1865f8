"""Faults between the keys of a vertical job. Source: docs/methods/vertical.md, sections 2, 6 to 11."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ...jobs.explain import unbounded
from ...jobs.naming import faults as faults_of_names
from ...kernels.families import BINARY, FAMILIES, quoted, taken_by
from ...privacy.accountant import LARGEST_EPSILON, LEAST_CLIP

if TYPE_CHECKING:
    from ...jobs.load import VerticalConfig
    from .keys import VerticalPrivacySection

NETWORKS = ("network", "bayes-network")


def conflicts(config: VerticalConfig) -> Iterator[str]:
    """Every fault, each a sentence with its remedy."""
    yield from _data(config)
    yield from _model(config)
    yield from _algorithm(config)
    if config.privacy is not None:
        yield from _private(config, config.privacy)


def _private(config: VerticalConfig, privacy: VerticalPrivacySection) -> Iterator[str]:
    """What has no private form; the reasons are in `algorithms.vertical_private`."""
    model, a, data = config.model, config.algorithm, config.data
    if model.kind != "linear" or model.augmentation != "augmented" or a.auxiliary != "mean-field" or a.inference != "sfvi":
        yield (
            '[privacy]: the private form is for kind = "linear", augmentation = "augmented", inference = "sfvi" and '
            'auxiliary = "mean-field": networks meet all rows in gradients that are not clipped'
        )
    if (
        a.batch_size is not None
        or a.draws > 1
        or a.local_steps > 1
        or a.theta_update != "gradient"
        or a.gradient_clip is not None
    ):
        yield "[privacy]: batch_size, draws, local_steps, theta_update and gradient_clip have no private form; remove them"
    if data.standardise == "own":
        yield '[privacy]: data.standardise = "own" moves every row by statistics of all rows; take "public", or "none"'
    if data.holdout or data.folds:
        yield "[privacy]: predictions of rows kept for testing would leave a client without noise; remove data.holdout and folds"
    if config.output.bound:
        yield "[privacy]: output.bound would leave a client without noise; remove it"
    if data.server is None:
        yield "[privacy]: the server needs a file with the response; give data.server"
    if (privacy.noise_multiplier is None) != privacy.calibrate:
        yield "privacy: wanted either noise_multiplier or calibrate = true"
    for name, clip in (("clip_z", privacy.clip_z), ("clip_gradient", privacy.clip_gradient)):
        if clip < LEAST_CLIP:
            yield f"privacy.{name} = {clip:g}: wanted at least {LEAST_CLIP:g}"
    if LARGEST_EPSILON < privacy.epsilon < math.inf:
        yield unbounded("privacy.epsilon", privacy.epsilon)
    if privacy.calibrate and privacy.epsilon == math.inf:
        yield "privacy.calibrate = true needs a finite epsilon"


def _data(config: VerticalConfig) -> Iterator[str]:
    data, model = config.data, config.model
    if bool(data.clients) == bool(data.builtin):
        yield "data: wanted either data.clients (files) or data.builtin; give one of them"
    if data.builtin and (data.server or data.group):
        yield f'data.builtin = "{data.builtin}" has its own response and no groups; remove data.server and data.group'
    if config.job.rounds == "budget":
        yield 'job.rounds = "budget" does not exist with method = "vertical"; give a number'
    if data.folds is not None and (data.folds < 2 or data.fold >= data.folds):
        yield f"data.fold = {data.fold} of data.folds = {data.folds}: wanted at least 2 folds, and fold from 0 to folds - 1"
    if data.folds is not None and data.holdout:
        yield "data.folds and data.holdout both keep rows for testing; give one of them"
    if data.folds is None and data.fold:
        yield "data.fold without data.folds; give both"
    if data.positive is not None and FAMILIES[model.family].domain is not BINARY:
        binary = quoted(taken_by("vertical", where=lambda f: f.domain is BINARY))
        yield f'data.positive: only family = {binary} has a positive label, not "{model.family}"; remove it'
    if data.offset is not None and data.server is None:
        yield "data.offset is a column of the server's file; give data.server too"
    if (data.group is not None) != (model.kind == "multilevel"):
        yield 'data.group and model.kind = "multilevel" go together; give both, or neither'
    roles = [name for name in (data.id, data.response, data.offset, data.group) if name is not None]
    if len(set(roles)) < len(roles):
        yield f"data: id, response, offset and group must be different columns, got {', '.join(roles)}"
    yield from faults_of_names(data.names, "data.names")


def _model(config: VerticalConfig) -> Iterator[str]:
    model, a = config.model, config.algorithm
    if FAMILIES[model.family].lacks_scale(model.scale):
        yield FAMILIES[model.family].scale_is_missing
    if not 1e-6 < model.rho < 1e6:
        yield f"model.rho = {model.rho:g}: wanted above 1e-6 and below 1e6; it is a standard deviation on the link scale"
    if model.kind == "network" and model.augmentation == "power":
        yield 'model.kind = "network" has no auxiliary variables, so no augmentation = "power"; leave it out'
    if model.kind == "network" and a.inference == "soul":
        yield 'algorithm.inference = "soul" draws coefficients given auxiliary variables; kind = "network" has none'
    if model.kind in NETWORKS and model.priors:
        yield f'model.priors: the last layers of kind = "{model.kind}" have standard normal priors, or none; remove the table'
    if model.weight_sd is not None and model.kind not in NETWORKS:
        yield f'model.weight_sd is a prior of networks; kind = "{model.kind}" has none, remove it'
    if model.augmentation == "power" and a.response != "shared":
        yield 'algorithm.response = "server": augmentation = "power" needs the response at every client; set it to "shared"'


def _algorithm(config: VerticalConfig) -> Iterator[str]:
    model, a, data = config.model, config.algorithm, config.data
    family = FAMILIES[model.family]
    known = family.bounded and (family.dispersion is None or model.scale != "unknown")
    if a.local_steps > 1 and (model.augmentation == "power" or model.kind == "network" or not known):
        yield (
            f"algorithm.local_steps = {a.local_steps}: several steps from one exchange need augmented variables and a bounded "
            "curvature, that is bernoulli, or gaussian with a known scale; set it to 1"
        )
    if a.theta_update == "closed-form":
        wanted = model.kind == "linear" and model.augmentation == "augmented" and a.auxiliary == "mean-field"
        if not wanted or a.batch_size is not None:
            yield (
                'algorithm.theta_update = "closed-form" is for kind = "linear", augmentation = "augmented", '
                'auxiliary = "mean-field" and all rows; take "gradient"'
            )
    if a.inference == "soul":
        if model.kind != "linear":
            yield f'algorithm.inference = "soul" is for kind = "linear", not "{model.kind}"'
        if a.batch_size is not None or a.draws > 1 or a.local_steps > 1 or a.theta_update != "gradient":
            yield 'algorithm.inference = "soul" has neither batches, draws, local_steps nor theta_update; remove them'
        if a.auxiliary == "amortised":
            yield 'algorithm.inference = "soul" maximises the auxiliary variables; remove algorithm.auxiliary'
        if not family.bounded and model.augmentation == "power":
            yield f'algorithm.inference = "soul" with power likelihoods needs a bounded curvature, and "{family.name}" has none'
        if config.output.bound or config.output.missing_party:
            yield 'output.bound and output.missing_party do not exist with algorithm.inference = "soul"; remove them'
    if data.standardise == "public":
        for name, column in data.columns.items():
            if column.kind != "categorical" and column.levels is None and column.scale is None and column.lower is None:
                yield f'data.columns.{name}: standardise = "public" needs its center and scale, or lower and upper'
