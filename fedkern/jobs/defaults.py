"""What a job file may leave out: layers of defaults, the later ones stronger, the file itself the strongest."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Tables = dict[str, dict[str, Any]]

BASE: Tables = {
    "algorithm": {
        "variant": "pvi",
        "schedule": "sequential",
        "local_steps": 25,
        "optimiser_state": "keep",
        "estimator": "analytic",
        "average": "none",
    },
}
OPEN: Tables = {"algorithm": {"optimiser": "exact", "damping_form": "natural"}}
# pvi.md, sections 8 and 13: under natural damping noise in log sigma inflates the precision; the second half's mean is free.
PRIVATE: Tables = {
    "job": {"rounds": "budget"},
    "data": {"standardise": "public"},
    "algorithm": {"optimiser": "adagrad", "damping_form": "moment", "damping": 0.1, "average": "half"},
}
SHARDED: Tables = {"algorithm": {"optimiser": "adagrad"}, "privacy": {"sampling": "shards"}}
GLOBAL_VI: Tables = {"algorithm": {"optimiser": "adagrad", "local_steps": 1, "learning_rate": 0.05, "damping": 1.0}}
ONE_SHOT: Tables = {"job": {"rounds": 1}, "algorithm": {"schedule": "synchronous", "damping": 1.0}}
BUILTIN: Tables = {"data": {"standardise": "public"}}
ADULT: Tables = {"model": {"intercept": False}}  # its one-hot columns span the constant
# The public configuration files of the poster (docs/methods/pvi.md, section 13), with exact expectations.
PAPER: Tables = {
    "algorithm": {"schedule": "random", "optimiser": "adagrad", "damping": 0.1, "damping_form": "moment", "average": "none"}
}
PAPER_OPEN: Tables = {"job": {"rounds": 100}, "algorithm": {"learning_rate": 2.0, "local_steps": 20}}
PAPER_PRIVATE: Tables = {
    "job": {"rounds": 1000},
    "privacy": {"noise_multiplier": 5.0, "clip": 1.5, "accountant": "rdp"},
}
LEARNING_RATE = {"adagrad": 0.5, "adam": 0.05, "sgd": 0.001, "exact": 1.0}


# docs/methods/sparse.md, sections 5 and 6.
SPARSE: Tables = {
    "job": {"rounds": 2500},
    "data": {"standardise": "none"},
    "privacy": {"calibrate": False, "accountant": "pld"},  # only so that a whole section can be refused in one sentence
}


# docs/methods/vertical.md, sections 4 and 9.
VERTICAL: Tables = {"job": {"rounds": 10_000}}

# docs/methods/sigma.md, sections 6 and 7.
SIGMA: Tables = {
    "job": {"rounds": 5_000},
    "privacy": {"calibrate": False, "accountant": "pld"},  # only so that a whole section can be refused in one sentence
}

HEART_FAILURE: Tables = {"data": {"id": "id", "response": "HeartDisease"}}


def table(raw: Mapping[str, Any], section: str) -> Mapping[str, Any]:
    """A section of the file as it came; what is no table is left to validation."""
    value = raw.get(section, {})
    return value if isinstance(value, Mapping) else {}


def filled(raw: Mapping[str, Any]) -> dict[str, Any]:
    """The job file with everything it left out.

    Parameters
    ----------
    raw : the file's tables as they came, not yet validated

    Returns
    -------
    the tables, with the defaults of the method, of a private or an open job, of the variant, and of the preset
    """
    private = "privacy" in raw
    variant = table(raw, "algorithm").get("variant", "pvi")
    method = table(raw, "job").get("method")
    if isinstance(method, str) and method in OTHERS:
        return OTHERS[method](raw)
    layers = [BASE, PRIVATE if private else OPEN]
    builtin = table(raw, "data").get("builtin")
    layers += [BUILTIN] * (builtin is not None) + [ADULT] * (builtin == "adult")
    layers += [SHARDED] * (variant in ("local-averaging", "virtual-clients"))
    layers += [GLOBAL_VI] * (variant == "global-vi") + [ONE_SHOT] * (variant in ("bcm-same", "bcm-split"))
    if table(raw, "model").get("preset") == "paper":
        layers += [PAPER, PAPER_PRIVATE if private else PAPER_OPEN]
    out = _laid(raw, layers)
    settings = out["algorithm"]
    if isinstance(settings, dict) and isinstance(settings.get("optimiser"), str):
        settings.setdefault("learning_rate", LEARNING_RATE.get(settings["optimiser"], 0.5))
    terms = out.get("privacy")
    if isinstance(terms, dict):
        if "noise_multiplier" in table(raw, "privacy") or "calibrate" not in terms:
            terms.setdefault("calibrate", False)
        elif terms["calibrate"] is True:
            terms.pop("noise_multiplier", None)  # that of a preset: the file asks for calibrated noise
        terms.setdefault("accountant", "rdp" if terms.get("sampling") == "without-replacement" else "pld")
    return out


def _laid(raw: Mapping[str, Any], layers: list[Tables]) -> dict[str, Any]:
    """The file over the layers, section by section."""
    out: dict[str, Any] = {**raw}
    for section in ("job", "data", "model", "algorithm", "privacy", "output"):
        if section == "privacy" and "privacy" not in raw:
            continue
        if section in raw and not isinstance(raw[section], Mapping):
            continue
        out[section] = {k: v for layer in layers for k, v in layer.get(section, {}).items()} | dict(table(raw, section))
    return out


def _sparse(raw: Mapping[str, Any]) -> dict[str, Any]:
    """A sampler's job: `until.max_rounds` is its number of rounds; several server sweeps where they cost no message."""
    out = _laid(raw, [SPARSE])
    job, algorithm = out["job"], out["algorithm"]
    if not isinstance(job, dict) or not isinstance(algorithm, dict):
        return out
    until = algorithm.get("until")
    if isinstance(until, Mapping) and "rounds" not in table(raw, "job"):
        job["rounds"] = until.get("max_rounds", 20_000)
    rounds = job["rounds"] if isinstance(job["rounds"], int) else 2500
    algorithm.setdefault("burn_in", min(500, rounds // 5))
    several = algorithm.get("aggregate", "locals") == "locals" and algorithm.get("scales", "exact") == "exact"
    algorithm.setdefault("server_sweeps", 5 if several else 1)
    return out


def _vertical(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Networks have no intercept of their own; a power likelihood needs the response at all clients (vertical.md, section 6)."""
    builtin = table(raw, "data").get("builtin") == "heart-failure"
    out = _laid(raw, [VERTICAL] + [HEART_FAILURE] * builtin)
    model, algorithm = out["model"], out["algorithm"]
    if not isinstance(model, dict) or not isinstance(algorithm, dict):
        return out
    model.setdefault("intercept", model.get("kind", "linear") not in ("network", "bayes-network"))
    power = model.get("augmentation") == "power"
    algorithm.setdefault("response", "shared" if power else "server")
    soul = algorithm.get("inference") == "soul"
    algorithm.setdefault("auxiliary", "mean-field" if soul or "privacy" in raw else "amortised")
    if "privacy" in raw and isinstance(out["data"], dict):
        out["data"].setdefault("standardise", "public")
    terms = out.get("privacy")
    if isinstance(terms, dict):
        terms.setdefault("calibrate", "noise_multiplier" not in terms)
    return out


def _sigma(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Beside a smooth curve the auxiliary model's white noise would pass for error (docs/methods/sigma.md, section 8)."""
    out = _laid(raw, [SIGMA])
    job, model, algorithm = out["job"], out["model"], out["algorithm"]
    points = bool(table(raw, "data").get("location"))
    if isinstance(model, dict):
        model.setdefault("kind", "deterministic" if points else "auxiliary")
    if isinstance(algorithm, dict) and isinstance(job, dict):
        rounds = job["rounds"] if isinstance(job["rounds"], int) else 5_000
        algorithm.setdefault("burn_in", rounds // 2)
    return out


OTHERS: dict[Any, Callable[[Mapping[str, Any]], dict[str, Any]]] = {"sparse": _sparse, "vertical": _vertical, "sigma": _sigma}
