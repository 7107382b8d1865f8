"""The job file's sections where method = "sigma". Source: docs/methods/sigma.md, sections 4 to 7 and 9."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator
from pydantic_core import PydanticCustomError

from ...jobs.section import LARGEST, CommonOutputSection, Count, Finite, Positive, Section, key
from ...kernels import families


def _known(value: Any) -> Any:
    if value == "unknown" or (isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= LARGEST):
        return value
    raise PydanticCustomError("known", 'a number > 0, or "unknown"')


Known = Annotated[float | str, BeforeValidator(_known)]


class SigmaModelSection(Section):
    prior: str = key(help="folder of a trained prior (fedkern sigma train), or this party's file of it")
    kind: Literal["auxiliary", "deterministic"] = key(
        help="theta about the decoder's output with the variance that it lacks, or equal to it (the default with location)"
    )
    family: families.OfSigma = key("poisson", help="of the response, canonical link")
    scale: Known = key(
        "unknown",
        help="error sd of a gaussian response; unknown: half-normal, its scale the response's sd"
        + families.given_scales("sigma"),
    )
    spatial_scale: Known = key("unknown", help="sigma_theta, which multiplies theta; unknown: half-normal, of the same scale")
    intercept: bool = key(True, help="with a normal prior about the pooled level of the responses on the link scale")
    coefficient_sd: Positive = key(5.0, help="prior sd of intercept and coefficients; gaussian: in units of the response's sd")
    phi: Finite | None = key(None, help="one value of the prior's hyperparameter, instead of its prior")


class SigmaAlgorithmSection(Section):
    inference: Literal["sfvi", "sfvi-avg", "hmc", "mala", "nuts"] = key(
        "sfvi", help="variational; with several local steps (not exact); or Markov chains, the accurate route for few unknowns"
    )
    covariance: Literal["full", "diagonal"] = key("full", help="sfvi: of the global unknowns")
    local_covariance: Literal["auto", "full", "diagonal"] = key("auto", help="sfvi: of a client's latents; full up to 64")
    structured: bool = key(True, help="sfvi: whether a client's latents depend on the global ones; false is mean-field")
    estimator: Literal["stl", "entropy"] = key("stl", help="sfvi: sticking the landing, or the closed-form entropy")
    gradient_draws: Count = key(1, help="sfvi: joint draws of a round; messages grow with them")
    optimiser: Literal["adam", "adagrad", "sgd"] = key("adam", help="sfvi: of all parties")
    learning_rate: Positive = key(0.01, help="sfvi: of all parties")
    cool_down: float = key(0.5, ge=0, le=1, help="sfvi: share of the rounds, at the end, over which the rate falls to nothing")
    start_sd: Positive = key(0.1, help="sfvi: standard deviation of the global unknowns at the start")
    local_steps: Count = key(10, help="sfvi-avg: steps of each client in a round")
    burn_in: int = key(ge=0, help="hmc, mala: rounds in which steps adapt; default half of them")
    thin: Count = key(1, help="hmc, mala: rounds from one kept draw to the next")
    leapfrog_steps: Count = key(10, help="hmc: steps of a round, each of them one exchange")
    step_size: Positive = key(0.1, help="hmc, mala: at the start")
    target_acceptance: float | None = key(None, gt=0, lt=1, help="hmc, mala: default 0.8 and 0.57")
    checkpoint_every: Positive = key(60.0, help="seconds between checkpoints")


class SigmaOutputSection(CommonOutputSection):
    metrics_every: Count = key(100, help="rounds between two lines of metrics.jsonl")
    draws: Count = key(1000, help="sfvi: per chain, from the posterior into posterior.nc")
    chains: Count = key(4, help="independent sets of draws, or Markov chains")
    bound: bool = key(False, help="sfvi: clients also send their terms of the ELBO, one number a round")
    threshold: Finite = key(1.0, help="areas' tables have the probability that a rate (or probability, or mean) is above it")
