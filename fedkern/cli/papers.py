"""Makes tables and figures of the papers, by name, with code of a checkout (benchmarks/papers) that is not installed."""

from __future__ import annotations

import json
import sys
from importlib import import_module, metadata
from pathlib import Path
from urllib.parse import unquote, urlsplit

from ..errors import JobError

PAPERS = {
    "dp-pvi-adult": "DP-PVI on UCI Adult: accuracy, log-likelihood and epsilon on three splits, and the learning curves",
    "sparse-regression": "Sparse regression on heart disease in four hospitals: effects, PIPs, and which hospital deviates",
    "sparse-mrf": "Markov random field of breast cancer proteins at seven sites: 11 proteins, and all 217",
    "sparse-sem": "Cyclic structural equation model of protein signalling under nine conditions, against two published networks",
    "sparse-simulation": "Sparse regression with a known truth: power and false discoveries against clients, differences and L",
    "vertical-logistic": "Columns of a logistic regression split over 2 and 10 clients: bounds, and posteriors against NUTS",
    "vertical-poisson": "Counts in areas whose covariates two clients hold: simulated areas, and homicides in US counties",
    "sigma-gp": "Trained priors of three clients against a Gaussian process: covariances, draws, and a posterior",
    "sigma-car": "A trained prior of the Australian map, eight states: posterior means against the exact ones of the CAR model",
    "sigma-homicide": "Homicides in US counties, 49 states: a map of all clients, federated, against NUTS on the pooled data",
    "vertical-heart": "Split networks on heart patients, two clients: cross-validated scores against pooled logistic regression",
}


def run_paper(name: str, *, fast: bool, out: Path, seed: int, printed: bool) -> None:
    """Makes a table in this folder's checkout, or in the one that holds the package, and prints it. `seed` is that of the jobs.
    Raises JobError: no such name, no checkout, or a refusal of the checkout's `papers.run`."""
    if name not in PAPERS:
        raise JobError(f"reproduce {name}: no such reproduction; there are {', '.join(PAPERS)}")
    # Not in the folders above: in a shared one anybody could have put code there.
    for folder in (Path.cwd(), Path(__file__).parents[2]):
        if (folder / "benchmarks" / "papers" / f"{name.replace('-', '_')}.py").is_file():
            sys.path.insert(0, str(folder / "benchmarks"))  # processes that it starts look there, too
            import_module("papers").run(name, fast=fast, out=out, seed=seed, printed=printed)
            return
    raise JobError(f"reproduce {name}: runs in the root of a checkout of fedkern, and {Path.cwd()} is none; {_checkout()}")


def _checkout() -> str:
    """Says how to get a checkout: from where this package was installed, as pip has noted (PEP 610)."""
    try:
        origin = json.loads(metadata.distribution("fedkern").read_text("direct_url.json") or "{}")
    except metadata.PackageNotFoundError:
        origin = {}
    url = origin.get("url", "")
    if "vcs_info" in origin:
        return f"git clone {url}, and run this again in the new folder"
    folder = Path(unquote(urlsplit(url).path))
    if "dir_info" in origin and (folder / "benchmarks" / "papers").is_dir():
        return f"it was installed from {folder}: go there, and run this again"
    return "clone the repository that it was installed from, and run this again in the new folder"
