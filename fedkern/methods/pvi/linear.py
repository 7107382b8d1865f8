"""Finds private linear jobs whose result cannot be right because of the response's unit, and says what their intervals assume.

Everything follows from the job file, and from posteriors that are made of charged sums: no row is asked anything. No charged sum
holds squares of responses, so the job file must say how large errors are; whether a clip cuts them can be computed.
Source: docs/spec/pvi.md, section 16, "Errors of a linear job"; docs/how-to/private-linear.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import exp1

from ...algorithms.pvi import noise_aware
from .model import Model

UNIT = 4.0  # the largest `model.scale` that was tried with steps and priors of a fixed length
LEAST = 0.05  # and the least
ENOUGH = 2.5  # row lengths over the scale: a clip that cuts about 1 % of the rows
SHORT = 0.25  # and one that cuts nearly all of them
LONG = 4.0  # times what is enough: the noise is so many times larger than it need be
SURE = 2.0  # standard errors
FARTHER = 3.0  # times the mean square of points: the curvature is weighted by it, as a normal one's fourth power
NAMED = 1.4  # times `model.scale`: errors that are worth a word
LARGEST = 20.0  # times it, that can be told
FAR = 4.0  # sds of its prior, beyond which the intercept is not where the job file has it


def is_private(model: Model) -> bool:
    """Returns whether the job is a private linear one."""
    return model.privacy is not None and model.family == "gaussian"


def assumed(model: Model) -> str:
    """Says which standard deviation of the errors the intervals of a linear job assume; "" where it is learnt."""
    if model.family != "gaussian" or model.given.learnt:
        return ""
    return f"errors are taken to have a standard deviation of {model.scale:g} in the response's unit (model.scale)"


def of_file(model: Model) -> list[str]:
    """Returns, from the job file alone, the reasons why no result of the job can be judged."""
    return [why for why in (_of_scale(model), _of_unit(model)) if why] if is_private(model) else []


def notes(model: Model) -> list[str]:
    """Returns the reasons why intervals are wider than they need be, which does not make them wrong.

    While the unit itself is in doubt (`of_file`), the list is empty.
    """
    if not is_private(model) or of_file(model):
        return []
    return [why for why in (_of_large_unit(model), _of_short_clips(model), of_long_clips(model)) if why]


def length(model: Model) -> float:
    """Returns the length of a row whose columns have the mean squares that the job file gives them."""
    return math.sqrt(float(model.encoding.spread.sum()))


def enough(model: Model, scale: float | None = None) -> float:
    """Returns a clip that cuts about 1 % of the rows: gradients of a linear row are (error / scale^2) x row."""
    return ENOUGH * length(model) / (model.scale if scale is None else scale)


def _of_scale(model: Model) -> str:
    """Returns advice where the job file has no `model.scale`; "" where it has one."""
    if model.gives_scale:
        return ""
    return (
        "model.scale is not given: intervals are as wide as errors with a standard deviation of 1 in the response's unit make "
        "them, whatever the errors are; give model.scale = the standard deviation of the errors, in the response's unit, from "
        f"public knowledge and not from these rows (above {UNIT:g} divide the response by it in all files, and give 1), "
        f"model.intercept_centre = the response's level, and privacy.clip = {ENOUGH * length(model):.2g} / model.scale"
    )


def _of_unit(model: Model) -> str:
    """Says how to change a unit in which `model.scale` is above `UNIT`; "" where it is not.

    Steps and priors have a fixed length in the response's unit, and the clip does not scale the curvature in log sigma.
    """
    scale, centre = model.scale, model.given.centre
    if scale <= UNIT:
        return ""
    level = "the level in the new unit" if centre is None else f"{centre / scale:.3g}"
    return (
        f"model.scale = {scale:g}: in so small a unit of the response the steps of the optimiser are too short for its "
        f"coefficients, and the prior too narrow (tried up to {UNIT:g}); divide the response by {scale:g} in all files, and give "
        f"model.scale = 1, model.intercept_centre = {level} and privacy.clip = {enough(model, 1.0):.2g}"
    )


def _of_large_unit(model: Model) -> str:
    """Says how to change a unit in which `model.scale` is below `LEAST`; "" where it is not."""
    if model.scale >= LEAST:
        return ""
    return (
        f"model.scale = {model.scale:g}: in so large a unit of the response the prior of q is wide beside the errors, the clip "
        "cuts what rows say of its width, and intervals are several times too wide; divide the response by it in all files, "
        f"and give model.scale = 1 and privacy.clip = {enough(model, 1.0):.2g}"
    )


def _clips(model: Model) -> dict[str, float]:
    """Returns each client's clip on its rows, by name."""
    if model.privacy is None or model.by_client:
        return {}
    return {name: clip for name in model.names if (clip := model.privacy.of(name).clip) is not None}


def of_clip(model: Model) -> str:
    """Says how far from its prediction a response may be before the clip cuts its row; "" in other than private linear jobs."""
    if not is_private(model) or not (clips := _clips(model)):
        return ""
    return (
        f"cuts a usual row where its response is more than {_reach(model, clips):.2g} from its prediction; clip = "
        f"{enough(model):.2g} does where that is {ENOUGH:g} standard deviations of the errors, and a larger one adds noise"
    )


def _reach(model: Model, clips: Mapping[str, float]) -> float:
    """Returns how far from its prediction a response may be before the shortest of the clips cuts a usual row."""
    return min(clips.values(), default=math.inf) * model.scale**2 / length(model)


def _of_short_clips(model: Model) -> str:
    """Names the client whose clip cuts nearly all of its rows; "" where none does."""
    clips = _clips(model)
    name = min(clips, key=clips.__getitem__, default="")
    if not clips or clips[name] >= SHORT * length(model) / model.scale:
        return ""
    return (
        f"clip = {clips[name]:g} of client {name!r} cuts nearly all rows, whose gradients are about {length(model):.2g} (a row) "
        f"/ {model.scale:g} (model.scale) long: intervals are several times wider than with privacy.clip = {enough(model):.2g}"
    )


def of_long_clips(model: Model) -> str:
    """Names the client whose clip is longer than it need be: the noise grows with it. The result is right, and wide."""
    clips = _clips(model) if is_private(model) else {}
    name = max(clips, key=clips.__getitem__, default="")
    if not clips or clips[name] <= LONG * enough(model):
        return ""
    return (
        f"clip = {clips[name]:g} of client {name!r} is {clips[name] * model.scale / length(model):.2g} times as long as a row's "
        f"gradient, about {length(model):.2g} (a row) / {model.scale:g} (model.scale), and noise grows with it: "
        f"privacy.clip = {enough(model):.2g} is enough"
    )


def of_errors(model: Model, estimate: noise_aware.Estimate) -> str:
    """Says that the clip cuts more rows than it would if errors were as large as the job file says; "" where it does not."""
    clips = [clip * model.scale / length(model) for clip in _clips(model).values()]
    times = larger(estimate, clips, model.encoding.spread / model.scale**2)
    if times is None:
        return ""
    about = f"about {times:.2g} times" if times < LARGEST else f"over {LARGEST:g} times"
    return (
        f"the clip cuts more rows than errors of model.scale = {model.scale:g} would have it cut, as if they were {about} as "
        "large: intervals are then too narrow; give model.scale = the standard deviation of the errors, in the response's unit "
        "(or is the response's level far from model.intercept_centre, or are center and scale in [data.columns] not those of the "
        "rows?)"
    )


def larger(estimate: noise_aware.Estimate, clips: Sequence[float], spread: NDArray[np.float64]) -> float | None:
    """Estimates by which factor errors are larger than the job file says; None where noise explains the difference.

    A row that is cut loses its part of the curvature in mu, and keeps some of that in omega. The estimate is at most `LARGEST`.

    Parameters
    ----------
    estimate : the noise-aware estimate, with the share of curvature that the clip left
    clips : of the clients, in lengths of a row whose error is one standard deviation
    spread : (d,) mean squares of the columns over the square of the scale
    """
    beside = FARTHER * float((spread * estimate.roamed).sum())  # what the early points add to residuals

    def expected(times: float) -> float:
        return float(np.mean([kept(clip / math.sqrt(times**2 + beside)) for clip in clips]))

    if not estimate.uncut < expected(1.0) - SURE * estimate.uncut_error:
        return None
    # The share falls as errors grow: take the factor on a grid whose expected share is nearest.
    times = min(np.geomspace(1, LARGEST, 200).tolist(), key=lambda factor: abs(expected(factor) - estimate.uncut))
    return None if times < NAMED else float(times)


def kept(clip: float) -> float:
    """Computes the `Estimate.uncut` that normal errors have, where rows are cut at `clip` standard deviations of the error.

    It is the share of the rows that are not cut, over the mean factor of the clip.
    """
    inside = math.erf(clip / math.sqrt(2))
    outside = clip * float(exp1(clip * clip / 2)) / math.sqrt(2 * math.pi)  # 2 clip x integral of phi(z) / z beyond it
    return inside / (inside + outside)


def late(model: Model, coefficient: int) -> str:
    """Returns advice where an estimate is far from the points of the late steps; "" in other than private linear jobs."""
    if not is_private(model):
        return ""
    if model.encoding.intercept and coefficient == 0:
        return "give model.intercept_centre = the response's level, from public knowledge"
    return f"is model.scale = {model.scale:g} the standard deviation of the errors? or raise job.rounds"


def of_level(model: Model, mean: NDArray[np.float64], step: NDArray[np.float64] | None = None) -> str:
    """Says that the response's level is far from the one in the job file; "" where it is near.

    Parameters
    ----------
    mean : (d,) of a posterior
    step : (d,) how far an estimate is from the points of the late steps; far from them the clip cuts most rows on one side, and
        gradients are no lines
    """
    if not (is_private(model) and model.encoding.intercept):
        return ""
    centre = 0.0 if model.given.centre is None else model.given.centre
    away = abs(float(mean[0]) - centre)
    far = away > FAR * model.given.spread
    if step is not None and not far:
        beyond = math.sqrt(float(model.encoding.spread @ step**2))
        far = abs(step[0]) == np.abs(step).max() and beyond > _reach(model, _clips(model))
    if not far:
        return ""
    given = "is not given, which is 0" if model.given.centre is None else f"= {centre:g}"
    return (
        f"the intercept is far from its prior (model.intercept_centre {given}, sd {model.given.spread:g}): steps may not arrive "
        "there, and the clip cuts most rows until they do; give model.intercept_centre = the response's level, in its unit and "
        "from public knowledge"
    )
