"""Priors that are exact inside each client, of a small map whose clients and areas are those of `sigma_artifacts`."""

import itertools
import shutil
import tempfile
from functools import cache
from pathlib import Path

from fedkern.jobs.run import Output
from fedkern.methods.sigma.prior import build
from fedkern.methods.sigma.prior.keys import parse
from support import sigma_artifacts as artifacts


def tables(kind="car"):
    """A prior file: one row of areas, client after client, with a second way round."""
    return {
        "prior": {"kind": kind} | ({"lengthscale": [0.5, 3.0]} if kind == "gp" else {}),
        "data": {"areas": "areas.csv", "area": "area", "client": "client", "x": "x", "y": "y"}
        | ({} if kind == "gp" else {"adjacency": "edges.csv"}),
        "within": {"values": 9},
    }


def written(folder, kind="car", **within):
    """The map's files and the artifact in `folder` / prior, of which each is built once; what was built."""
    kept, result = _kept(kind, tuple(within.items()))
    shutil.copytree(kept.name, folder, dirs_exist_ok=True)
    return result


@cache
def _kept(kind, within):
    folder = tempfile.TemporaryDirectory(prefix="fedkern-prior-")
    return folder, built(Path(folder.name), kind, **dict(within))


def built(folder, kind="car", **within):
    """The same, built here."""
    folder.mkdir(parents=True, exist_ok=True)
    places = [(f"{name}-{i}", name) for name, d in zip(artifacts.NAMES, artifacts.SIZES) for i in range(d)]
    lines = [f"{area},{name},{k % 4 / 2},{k // 4 / 2}" for k, (area, name) in enumerate(places)]
    (folder / "areas.csv").write_text("area,client,x,y\n" + "\n".join(lines) + "\n")
    names = [area for area, _ in places]
    pairs = [*itertools.pairwise(names), *zip(names, names[4:])]
    (folder / "edges.csv").write_text("one,other\n" + "\n".join(map(",".join, pairs)) + "\n")
    raw = tables(kind)
    raw["within"] |= within
    return build.perform(parse(raw), folder, Output(folder / "prior", quiet=True))
