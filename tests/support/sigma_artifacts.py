"""Prior artifacts with random networks, and files of rows that fit them."""

import numpy as np

from fedkern.data import artifact
from fedkern.models.spatial.condition import Condition, Hyperprior
from fedkern.models.spatial.decoder import Decoder
from fedkern.models.spatial.loadings import of_decoders
from support import sigma_cases as cases

NAMES = ("east", "north", "west")
SIZES = (5, 7, 4)


def common(variant="multiplicative", kind="car", **more):
    condition = Condition("phi", 0.0, 0.99, "unit", Hyperprior("logit-normal")) if kind == "car" else more.pop("condition")
    about = {"id": "a" * 64, "kind": kind, "condition": condition, "variant": variant, "n_global": cases.P_G, "gamma": 0.1}
    about |= {"hidden": cases.HIDDEN, "local_hidden": cases.LOCAL, "width": cases.WIDTH, "rank": cases.RANK}
    return artifact.Common(**(about | more))


def written(folder, variant="multiplicative", seed=1, names=NAMES, sizes=SIZES, **more):
    """An artifact in `folder`; returns its clients' files."""
    rng = np.random.default_rng(seed)
    about = common(variant, **more)
    clients = []
    lengths = [cases.sizes(variant, d) for d in sizes]
    shared = {name: rng.normal(0, 0.5, n) for name, n in lengths[0].items() if name in artifact.SHARED}
    for k, (name, d, length) in enumerate(zip(names, sizes, lengths)):
        parts = shared | {part: rng.normal(0, 0.3, n) for part, n in length.items() if part not in shared}
        areas = tuple(f"{name}-{i}" for i in range(d))
        places = np.column_stack([rng.uniform(k, k + 1, d), rng.uniform(0, 1, d)])
        if about.kind == "gp":
            areas, places = (), np.linspace(k, k + 1, d, endpoint=False)[:, np.newaxis]
        tau2, variance = rng.uniform(0.05, 0.2, (1, d)), rng.uniform(0.3, 0.5, d)
        clients.append(
            artifact.ClientFile(
                about, name, k, cases.P_L, np.full(d, 0.7), parts, tau2, np.zeros(1), variance, areas=areas, locations=places
            )
        )
    decoders = [Decoder(one.architecture, one.parts, one.scale) for one in clients]
    artifact.write(folder, about, clients, mean_loadings=of_decoders(decoders, about.condition))
    return [artifact.read_client(folder, name) for name in names]


def counts(folder, names=NAMES, sizes=SIZES, seed=2, *, covariate=True):
    """A csv of counts for each client, one area without a response each; returns the pattern of the files."""
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    for name, d in zip(names, sizes):
        lines = ["district,cases,expected" + (",poverty" if covariate else "")]
        for i in range(d):
            expected = rng.uniform(2, 20)
            cells = [f"{name}-{i}", "" if i == 1 else str(rng.poisson(expected)), f"{expected:.3f}"]
            lines.append(",".join(cells + ([f"{rng.normal(3, 2):.3f}"] if covariate else [])))
        (folder / f"{name}.csv").write_text("\n".join(lines) + "\n")
    return str(folder / "*.csv")
