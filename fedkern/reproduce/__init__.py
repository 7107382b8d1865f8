"""Tables and figures of the papers, by name. A module here has `run(out, fast) -> path of the table`."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from ..errors import JobError

NAMES = {
    "dp-pvi-adult": "DP-PVI on UCI Adult: accuracy, log-likelihood and epsilon on three splits, and the learning curves",
    "sparse-regression": "sparse regression on heart disease in four hospitals: effects, PIPs, and which hospital deviates",
    "sparse-mrf": "Markov random field of breast cancer proteins at seven sites: 11 proteins, and all 217",
    "sparse-sem": "cyclic structural equation model of protein signalling under nine conditions, against two published networks",
    "sparse-simulation": "sparse regression with a known truth: power and false discoveries against clients, differences and L",
    "vertical-logistic": "columns of a logistic regression split over 2 and 10 clients: bounds, and posteriors against NUTS",
    "vertical-poisson": "counts in areas whose covariates two clients hold: simulated areas, and homicides in US counties",
    "sigma-gp": "trained priors of three clients against a Gaussian process: covariances, draws, and a posterior",
    "sigma-car": "a trained prior of the Australian map, eight states: posterior means against the exact ones of the CAR model",
    "sigma-homicide": "homicides in US counties, 49 states: a trained prior, federated, against NUTS on the pooled data",
    "vertical-heart": "split networks on heart patients, two clients: cross-validated scores against pooled logistic regression",
}
PRINTED = ("sparse-regression",)  # those with `printed`: what the paper's slips change


def run(name: str, *, fast: bool, out: Path, printed: bool = False) -> None:
    """Makes one reproduction, says where it is and prints its table.

    Raises
    ------
    JobError
        `printed` for a reproduction that has no slips to show, or missing data.
    """
    if printed and name not in PRINTED:
        raise JobError(f"reproduce {name}: has no --printed; that is for {', '.join(PRINTED)}")
    module = import_module(f"{__name__}.{name.replace('-', '_')}")
    table: Path = module.run(out, fast, **({"printed": True} if printed else {}))
    print(f"{table}\n\n{table.read_text(encoding='utf-8')}")
