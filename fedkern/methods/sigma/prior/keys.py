"""Defines the prior file of `fedkern sigma build` and `train`: each key, and the values that it may have.

Source: docs/spec/sigma.md, sections 1 to 5 and 8 to 10.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator
from pydantic_core import PydanticCustomError

from ....jobs.keys import Count, Device, Finite, Positive, Raw, Section, Tables, key
from ....jobs.load import merged, overridden, table, tables_of, validate_file, written_once
from ....results.plain import plain

ERROR = 0.05  # of posterior means, relative to that of independent areas: what a prior may miss of the one it stands for
ABOVE = 1.05  # times the error that is asked for, from which on it is said: the number of latents is found to a twentieth


def _draws(value: object) -> Any:
    if value == "none" or (type(value) is int and value >= 1):
        return value
    raise PydanticCustomError("draws", 'a whole number of at least 1, or "none" for fresh draws in every step')


def _latents(value: object) -> Any:
    if value == "auto" or (type(value) is int and value >= 1):
        return value
    raise PydanticCustomError("latents", 'a whole number of at least 1, or "auto" for as many as within.error takes')


def _gamma(value: Any) -> Any:
    if value in ("learn", "auto") or (type(value) in (int, float) and 0 < value < float("inf")):
        return value
    raise PydanticCustomError("gamma", 'a number > 0, a standard deviation, or "learn" or "auto"')


class HyperpriorSection(Section):
    """Holds the prior of phi in inference."""

    kind: Literal["uniform", "logit-normal"] = key("uniform", help="of phi in inference, truncated to its range")
    mean: Finite = key(0.0, help="of logit phi")
    variance: Positive = key(2.0, help="of logit phi; a variance")


class GridSection(Section):
    """Describes points on a line, without a file."""

    points: int = key(100, ge=2, help="equidistant, both ends included")
    lo: Finite = key(0.0, help="first point")
    hi: Finite = key(1.0, help="last point")
    cuts: list[Finite] = key([0.34, 0.67], help="where one client ends and the next begins")


class PriorSection(Section):
    kind: Literal["car", "leroux", "bym2", "gp"] = key(help="of the prior that the networks stand in for")
    preset: Literal["paper"] | None = key(None, help="a published configuration, whose values the file may override")
    phi: list[Finite] | None = key(None, help="car, leroux: range [lo, hi] of phi; default [0, 0.99]")
    lengthscale: list[Finite] | None = key(None, help="gp: range [lo, hi] of the lengthscale")
    hyperprior: HyperpriorSection = key(HyperpriorSection(), help="of phi or the lengthscale in inference")
    kernel: Literal["rbf", "matern12", "matern32", "matern52"] = key("rbf", help="gp: covariance function")
    grid: GridSection | None = key(None, help="gp: points on a line, instead of [data]")


class DataSection(Section):
    areas: str | None = key(None, path=True, help="a table with a line for each area or point")
    area: str | None = key(None, help="its column with the area's name")
    client: str | None = key(None, help="its column that names the area's client")
    x: str | None = key(None, help="its column with the first coordinate: of a centroid, or of a point")
    y: str | None = key(None, help="with the second coordinate")
    adjacency: str | None = key(
        None, path=True, help="a file whose first two columns name neighbouring areas (a third of numbers is a weight: 0 is no "
        "neighbour, all others count as 1); or GeoDa's .gal, R-INLA's .graph",
    )  # fmt: skip
    adjacency_ids: Literal["names", "positions", "positions from 0"] | None = key(
        None, help="how adjacency calls areas: by names, or by positions in the order of `areas`, of which the first is 1 (as R "
        "writes them) or 0; default: a graph file by positions, all others by names",
    )  # fmt: skip
    polygons: str | None = key(
        None, path=True, help="GeoJSON, or a GeoPackage or shapefile, whose property named as `area` names the areas: instead of "
        "adjacency and x, y",
    )  # fmt: skip
    contiguity: Literal["vertex", "edge"] = key("vertex", help="polygons: neighbours have a corner in common, or a side")
    snap: Positive | None = key(None, help="polygons: metres within which borders are the same; default: by the file's digits")
    islands: Literal["link", "drop", "independent"] = key("link", help="areas without neighbours; link: to the nearest centre")
    unlinked: bool = key(False, help="whether there may be clients none of whose areas has a neighbour at another client")


class WithinSection(Section):
    error: Positive = key(ERROR, help="build: of posterior means, relative to that of independent areas")
    latents: Annotated[int | str, BeforeValidator(_latents)] = key(
        "auto",
        help="build: numbers that all clients share; auto: one for each area on a border, beyond 100 as many as error takes",
    )
    values: int = key(17, ge=7, help="build: of phi, between which splines go")


class NetworkSection(Section):
    variant: Literal["printed", "amended", "multiplicative"] = key(help="of the networks")
    hidden: Count = key(help="units of the global networks")
    local_hidden: Count = key(help="units of the clients' networks")
    global_latents: Count = key(help="numbers that all clients share")
    local_latents: Count = key(help="numbers of each client; never more than it has areas")
    width: Count = key(help="multiplicative: units of the networks of phi")
    rank: Count = key(help="multiplicative: how many linear maps are mixed")
    gamma: Annotated[float | str, BeforeValidator(_gamma)] = key(
        help="standard deviation of theta about the decoder; or learn; or auto: from what as many factors cannot hold"
    )
    standardise: bool = key(True, help="networks see theta over its prior standard deviation; false is the paper's")
    condition: Literal["identity", "unit", "log-unit", "log-rest"] = key(help="how the networks see phi")
    start: Literal["analytic", "random"] = key(help="multiplicative: from the best linear factors, or from random weights")


class TrainingSection(Section):
    steps: Count = key(help="iterations of Adam")
    batch: Count = key(help="draws in each")
    learning_rate: Positive = key(help="of Adam")
    decay: float = key(ge=0, le=1, help="last share of the steps, over which the rate falls to a hundredth")
    warmup: float = key(ge=0, le=1, help="first share of the steps, over which the weight of the KLs rises to 1")
    clip: float = key(1e3, ge=0, help="bound on the norm of the gradient; 0 is none")
    draws: Annotated[int | str, BeforeValidator(_draws)] = key(
        "none", help="fresh in every step, or so many used again and again"
    )
    table: Count = key(512, help="values of phi that draws are made for, stratified over the training range")
    refresh: int = key(0, ge=0, help="steps after which the values of phi are drawn anew; 0 is never")
    precision: Literal["float32", "float64"] = key("float32", help="of the networks; draws are made in float64")
    seed: int = key(1, ge=0, lt=2**64, help="of all draws and of the first parameters", remedy="a number of 64 bits")
    threads: Count | None = key(None, help="default: all cores; results do not depend on it")
    device: Device = key("cpu", help="where the steps run: a processor, or a GPU by CuPy")


class AuxiliarySection(Section):
    by: Literal["mean", "phi"] = key("mean", help="tau^2 for all phi, or at 20 values of phi")
    floor: Positive = key(0.01, help="least tau^2, a variance")
    ceiling: Positive = key(100.0, help="largest tau^2")
    draws: int = key(20_000, ge=100, help="of the decoder, to measure its variances")


class FitSection(Section):
    phi: list[Finite] | None = key(None, help="where covariances are compared; default three values of the range")
    draws: int | None = key(None, ge=100, help="of the decoder for each; default 20,000, on maps of more than 500 areas 4,000")


class PriorConfig(Section):
    """Holds a prior file with all defaults filled in."""

    prior: PriorSection
    data: DataSection = DataSection()
    within: WithinSection = WithinSection()
    network: NetworkSection
    training: TrainingSection
    auxiliary: AuxiliarySection = AuxiliarySection()
    fit: FitSection = FitSection()

    @property
    def range(self) -> tuple[float, float]:
        """The range of phi or the lengthscale."""
        given = self.prior.lengthscale if self.prior.kind == "gp" else self.prior.phi
        return (0.0, 0.0) if given is None else (given[0], given[-1])

    @property
    def identity(self) -> str:
        """The digest of all keys that a checkpoint depends on: speed and length of training may change on resuming."""
        free = {"steps", "learning_rate", "decay", "warmup", "clip", "threads", "device"}
        kept = self.model_dump(include={"prior": True, "data": True, "network": True, "training": True})
        if self.data.adjacency_ids is None:  # a key that a file does not have makes no other prior of it
            del kept["data"]["adjacency_ids"]
        kept["training"] = {name: value for name, value in kept["training"].items() if name not in free}
        return blake2b(json.dumps(plain(kept), sort_keys=True).encode(), digest_size=32).hexdigest()


BASE: Tables = {
    "network": {"variant": "multiplicative", "width": 32, "rank": 6, "start": "random"},
    "training": {"learning_rate": 1e-3, "decay": 0.4, "warmup": 0.1},
}
LINE: Tables = {
    "network": {"hidden": 16, "local_hidden": 16, "global_latents": 5, "local_latents": 5, "gamma": 0.5, "condition": "unit"},
    "training": {"steps": 20_000, "batch": 32},
}
# A large map has hundreds of directions that matter, more than latents: its standardised residual is large, and gamma near it.
MAP: Tables = {
    "network": {"hidden": 256, "local_hidden": 128, "global_latents": 40, "local_latents": 20, "gamma": "auto"},
    "training": {"steps": 1_000, "batch": 128},
}
AREAL: Tables = {
    "prior": {"phi": [0.0, 0.99], "hyperprior": {"kind": "logit-normal", "mean": 0.0, "variance": 2.0}},
    "network": {"condition": "log-rest"},
}
BYM2: Tables = {"network": {"condition": "identity"}}
# Given phi the variant is linear: it starts at its optimum, from where only small steps are taken.
ANALYTIC: Tables = {"network": {"start": "analytic"}, "training": {"learning_rate": 3e-5, "decay": 0.7, "warmup": 0.0}}
LONG: Tables = {"training": {"steps": 20_000}}  # from random weights
RANDOM: Tables = {"training": {"learning_rate": 6e-3, "decay": 0.7}}
# docs/spec/sigma.md, section 8: the published settings, on a range of phi without its end (section 10).
PAPER: Tables = {
    "network": {"variant": "printed", "standardise": False, "condition": "identity"},
    "training": {"decay": 0.0, "warmup": 0.0, "draws": 10_000},
}
PAPER_LINE: Tables = {"prior": {"grid": {}, "lengthscale": [0.2, 1.0]}, "training": {"learning_rate": 1e-3}}
PAPER_MAP: Tables = {
    "network": {"hidden": 2024, "local_hidden": 1048, "global_latents": 100, "local_latents": 50, "gamma": 0.03},
    "training": {"steps": 400_000, "batch": 128, "learning_rate": 1e-4},
}


def fill_defaults(raw: Raw) -> dict[str, Any]:
    """Lays the tables over the defaults of their kind, variant and preset."""
    kind, preset = table(raw, "prior").get("kind"), table(raw, "prior").get("preset")
    shape, paper = (LINE, PAPER_LINE) if kind == "gp" else (MAP, PAPER_MAP)
    layers = [BASE, shape]
    if kind in ("car", "leroux"):
        layers.append(AREAL)
    elif kind == "bym2":
        layers.append(BYM2)
    if preset == "paper":
        layers += [PAPER, paper]
        if kind == "gp" and table(raw, "data"):
            layers.append({"prior": {"grid": None}})
    usual = "printed" if preset == "paper" else "multiplicative"
    variant = table(raw, "network").get("variant", usual)
    if variant == "multiplicative":
        random = table(raw, "network").get("start") == "random"
        layers += [LONG, RANDOM] if random else [ANALYTIC]
    elif preset is None:
        layers.append(LONG)
    out: dict[str, object] = {}
    for layer in [*layers, raw]:
        out = merged(out, layer)
    return out


def load(path: str | Path, sets: Sequence[str] = ()) -> tuple[PriorConfig, Path]:
    """Reads and checks a prior file. Raises JobError: names every faulty key, its value, what was wanted, and the remedy.

    Parameters
    ----------
    path : of a TOML file
    sets : "section.key=value" overrides

    Returns
    -------
    its content, and the folder that its paths are relative to
    """
    path = Path(path)
    return parse(tables_of(path, "prior"), name=str(path), sets=sets), path.resolve().parent


def parse(raw: Raw, *, name: str = "prior", sets: Sequence[str] = ()) -> PriorConfig:
    """Checks the tables of a prior file and fills in the defaults; `name` begins the error text."""
    tables = overridden(written_once(raw, PriorConfig, name), sets, PriorConfig)
    return validate_file(PriorConfig, fill_defaults(tables), conflicts, name)


def conflicts(config: PriorConfig) -> Iterator[str]:
    """Yields every contradiction between keys, each as a sentence with its remedy."""
    prior, data, kind = config.prior, config.data, config.prior.kind
    wanted = {"car": "phi", "leroux": "phi", "gp": "lengthscale", "bym2": None}[kind]
    for name in ("phi", "lengthscale"):
        value = getattr(prior, name)
        if value is not None and name != wanted:
            yield f'prior.{name}: kind = "{kind}" has no {name}; remove it'
        elif value is None and name == wanted:
            yield f"prior.{name} is missing: its range, such as [0.2, 1.0]"
        elif value is not None and not (len(value) == 2 and value[0] < value[1]):
            yield f"prior.{name} = {value}: wanted [lo, hi] with lo < hi"
        elif value is not None and value[0] < 0:
            yield f"prior.{name} = {value}: wanted lo of at least 0"
        elif name == "phi" and value is not None and value[1] >= 1:
            yield f"prior.phi = {value}: the prior is proper below 1 only, and its variance grows without bound; end at 0.99"
        elif name == "lengthscale" and value is not None and value[0] == 0:
            yield f"prior.lengthscale = {value}: wanted lo > 0"
        elif name == "phi" and value is not None and value[0] == 0 and config.network.condition == "log-unit":
            yield 'network.condition = "log-unit": needs phi from above 0; take "log-rest"'
        elif name == "lengthscale" and value is not None and config.network.condition == "log-rest":
            yield 'network.condition = "log-rest" is for phi in (0, 1), not for a lengthscale; take "unit"'
    if kind == "bym2" and config.network.condition != "identity":
        yield 'network.condition: kind = "bym2" has no phi that networks could see; remove it'
    if kind == "bym2" and config.auxiliary.by == "phi":
        yield 'auxiliary.by = "phi": kind = "bym2" has no phi; take "mean"'
    if prior.hyperprior.kind == "logit-normal" and wanted != "phi":
        yield f'prior.hyperprior.kind = "logit-normal" is for phi in (0, 1), not for kind = "{kind}"; take "uniform"'
    if config.network.start == "analytic" and config.network.variant != "multiplicative":
        yield f'network.start = "analytic" is for variant = "multiplicative", not "{config.network.variant}"; take "random"'
    if config.auxiliary.floor >= config.auxiliary.ceiling:
        yield "auxiliary.floor: wanted below auxiliary.ceiling"
    lo, hi = config.range
    for phi in config.fit.phi or []:
        if not lo <= phi <= hi:
            yield f"fit.phi = {phi:g}: outside of its range [{lo:g}, {hi:g}]"
    yield from _sources(prior, data)


def _sources(prior: PriorSection, data: DataSection) -> Iterator[str]:
    """Yields faults of the files from which a prior is made."""
    if prior.kind == "gp":
        if (prior.grid is None) == (data.areas is None):
            yield "prior: a Gaussian process needs points: either prior.grid or data.areas (a table with columns x and client)"
        elif data.areas is not None and (data.x is None or data.client is None):
            yield "data: wanted x (the column of the coordinate) and client (the column that names the point's client)"
        for name in ("adjacency", "adjacency_ids", "polygons"):
            if getattr(data, name) is not None:
                yield f'data.{name}: kind = "gp" has no neighbours; remove it'
        if prior.grid is not None and not (prior.grid.lo < prior.grid.hi and sorted(set(prior.grid.cuts)) == prior.grid.cuts):
            yield "prior.grid: wanted lo < hi, and cuts in ascending order"
        return
    if prior.grid is not None:
        yield f'prior.grid: kind = "{prior.kind}" is of areas; remove it, and give data.areas'
    missing = [name for name in ("areas", "area", "client", "adjacency") if getattr(data, name) is None]
    if data.polygons is not None and "adjacency" in missing:
        missing.remove("adjacency")
    if missing:
        yield (
            f"data: {', '.join(missing)} missing: a map is a table of areas with their clients, and a list of neighbours or "
            "polygons (data.polygons)"
        )
    if data.adjacency_ids is not None and data.adjacency is None:
        yield "data.adjacency_ids: is of a list of neighbours (data.adjacency); remove it"
    if (data.x is None) != (data.y is None):
        yield "data: x and y go together"
