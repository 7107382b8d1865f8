"""The job file's sections where method = "vertical". Source: docs/methods/vertical.md, sections 2, 4, 6 to 11."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator
from pydantic_core import PydanticCustomError

from ...jobs.section import CommonOutputSection, Count, Finite, Positive, Section, key
from ...kernels import families


def _scale(value: Any) -> Any:
    if value == "unknown" or (isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < float("inf")):
        return value
    raise PydanticCustomError("scale", 'a number > 0, or "unknown"')


class PriorSection(Section):
    """The prior of one client's coefficients; it does not have to tell anybody."""

    mean: Finite = key(0.0, help="of every coefficient, on the standardised scale")
    sd: Positive = key(1.0, help="of every coefficient, on the standardised scale")


class VerticalModelSection(Section):
    kind: Literal["linear", "multilevel", "network", "bayes-network"] = key(
        "linear", help="of a client's part: linear, slopes by group, split network, hierarchical Bayes split network"
    )
    augmentation: Literal["augmented", "power"] = key("augmented", help="auxiliary variables alone, or power likelihoods")
    family: families.OfVertical = key("bernoulli", help="of the response, with its canonical link")
    rho: Positive = key(0.5, help="standard deviation of the auxiliary variables about the clients' parts")
    scale: Annotated[float | str, BeforeValidator(_scale)] = key(
        "unknown", help="standard deviation of a gaussian response" + families.given_scales("vertical")
    )
    intercept: bool = key(help="at the server, with a standard normal prior; default false for networks, else true")
    prior: PriorSection = key(PriorSection(), help="of every client's coefficients")
    priors: dict[str, PriorSection] = key({}, help="client -> the prior of its own coefficients")
    centred: bool = key(True, help="multilevel: slopes themselves, or their standardised deviations from the mean")
    hidden: list[Count] = key([8, 8], help="networks: units of the hidden layers, ReLU")
    features: Count = key(2, help="networks: outputs of a client's network, the columns of its last layer")
    weight_sd: Positive | None = key(None, help="networks: prior sd of weights, times the root of a layer's inputs; or none")


class VerticalAlgorithmSection(Section):
    inference: Literal["sfvi", "soul"] = key("sfvi", help="variational, or Langevin draws given the mode of the auxiliaries")
    auxiliary: Literal["mean-field", "amortised"] = key(help="family of the auxiliary variables; default amortised")
    inputs: Literal["recommended", "complete", "paper"] = key(
        "recommended", help="amortised: with the average message; with the part's own mean as well; or as published"
    )
    network: list[Count] = key([16, 16], help="amortised: units of the hidden layers, tanh")
    covariance: Literal["diagonal", "full"] = key("diagonal", help="of each client's coefficients")
    estimator: Literal["stl", "entropy"] = key("stl", help="of gradients: sticking the landing, or the closed-form entropy")
    response: Literal["server", "shared"] = key(help="where the response is used: at the server alone, or at all clients")
    draws: Count = key(1, help="joint draws of a round; messages grow with them")
    batch_size: Count | None = key(None, help="rows of a mini-batch; by default all")
    local_steps: Count = key(1, help="steps of a client from one exchange (augmented, logistic or known scale)")
    theta_update: Literal["gradient", "closed-form"] = key("gradient", help="closed-form: linear, mean-field, augmented")
    optimiser: Literal["adam", "adagrad", "sgd"] = key("adam", help="of all parties")
    learning_rate: Positive = key(0.01, help="of the optimiser")
    cool_down: float = key(0.0, ge=0, le=1, help="share of the rounds, the last, over which the learning rate falls to zero")
    average: Literal["none", "half"] = key("half", help="release the last parameters, or the mean over the second half of rounds")
    memory: float = key(0.9, ge=0, lt=1, help="of the average message that amortised families are told")
    start_sd: Positive = key(0.1, help="standard deviation of the coefficients' posterior at the start")
    gradient_clip: Positive | None = key(None, help="bound on the norm of a client's gradient")
    moves: Count = key(20, help="soul: Langevin moves of a client in a round")
    checkpoint_every: Positive = key(60.0, help="seconds between checkpoints")


class VerticalPrivacySection(Section):
    """Noise on what a client sends: the values of one row of its columns are protected, and nothing of the response is."""

    epsilon: float = key(gt=0, help="cap over all rounds, of every client for its own columns", remedy="inf is no cap")
    delta: float = key(gt=0, le=0.1, help="probability of exceeding epsilon", remedy="below 1 / rows, such as 1e-5")
    clip_z: Positive = key(3.0, help="bound on every |z|, in units of the linear predictor")
    clip_gradient: Positive = key(1.0, help="bound on the norm of a row's part of the gradient of a client's coefficients")
    noise_multiplier: Positive | None = key(None, help="noise sd over clip, of both releases of a round")
    calibrate: bool = key(help="find the noise multiplier from epsilon, delta and the number of rounds")
    noise_source: Literal["secure", "keyed"] = key("secure", help="keyed noise is for experiments: epsilon is infinite")
    accountant: Literal["pld", "rdp"] = key("pld", help="of dp-accounting")
    last_update: Literal["refuse"] = key("refuse", help="when a whole round no longer fits the budget")
    rows_per_person: Count = key(1, help="rows that one person may have")


class VerticalOutputSection(CommonOutputSection):
    metrics_every: Count = key(100, help="rounds between two lines of metrics.jsonl")
    draws: Count = key(1000, help="per chain, from the posterior into posterior.nc")
    chains: Count = key(4, help="independent sets of draws")
    bound: bool = key(False, help="clients also send their terms of the ELBO, one number a round")
    rule: Literal["posterior", "plug-in", "augmented"] = key("posterior", help="of the predictions on the rows kept for testing")
    missing_party: bool = key(False, help="score the test rows without each party too; clients send E z of the training rows")
