"""`fedkern sigma train`: from a map and a prior file to an artifact; what is refused; nothing is lost when it stops."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedkern.data.artifact import read_client, read_server
from fedkern.data.simulate.federations import Settings, simulate
from fedkern.errors import JobError
from fedkern.kernels.mlp import Architecture
from fedkern.methods.sigma.prior import keys as prior_config
from fedkern.methods.sigma.prior import train
from fedkern.methods.sigma.prior.keys import parse
from fedkern.models.spatial.decoder import Decoder
from support import hosted

SMALL = ["network.global_latents=3", "network.local_latents=2", "training.steps=400", "training.batch=8", "training.table=8"]
SMALL += ["training.draws=50", "training.threads=1", "auxiliary.draws=300", "fit.draws=200"]


@pytest.fixture(autouse=True)
def _few_drawings(request: pytest.FixtureRequest) -> None:
    """The page of a prior takes longer to draw than a small prior to train: of a map and of points it is drawn."""
    if request.function not in (test_a_map_becomes_an_artifact, test_points_become_an_artifact):
        request.getfixturevalue("undrawn")


@pytest.fixture
def prior(tmp_path: Path) -> Path:
    """A prior file of a small map."""
    return simulate("sigma", tmp_path / "map", Settings(clients=2, rows=12, columns=1)).with_name("prior.toml")


def options(*more: str) -> list[str]:
    return [word for setting in (*SMALL, *more) for word in ("--set", setting)]


def files(folder: Path) -> dict[str, bytes]:
    """What is handed out."""
    paths = [folder / name for name in ("manifest.json", "server.npz", "fit.json")]
    return {path.name: path.read_bytes() for path in [*paths, *sorted((folder / "clients").iterdir())]}


def test_a_map_becomes_an_artifact(fedkern, prior: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = fedkern("sigma", "train", prior, "--out", out, *options())
    assert done.code == 0, done.err
    assert "covariance error at phi 0.5" in done.out
    assert "tau^2:" in done.out
    assert "the prior of phi is truncated to [0, 0.99]" in done.err
    server = read_server(out)
    assert server.clients == ("client-01", "client-02")
    assert server.sizes == (12, 12)
    assert server.common.condition.hyperprior.variance == 2.0
    one, two = (read_client(out, name, id=server.common.id) for name in server.clients)
    assert one.areas[0] == "10001"
    assert two.areas[0] == "10013"
    assert not set(one.areas) & set(two.areas)
    assert np.allclose(one.true_variance, server.true_variance[0])
    assert (one.tau2 >= 0.01).all()
    fit = json.loads((out / "fit.json").read_text())
    assert [one["phi"] for one in fit["covariance"]] == [0.5, 0.9, 0.99]
    assert fit["tau2"]["unclipped"] <= 1
    page = (out / "report.html").read_text()
    assert page.count("<svg") == 4
    assert "client-02" in page
    assert (out / "training" / "eigen.npz").exists()
    assert "training" not in json.loads((out / "manifest.json").read_text())["digests"]


@pytest.mark.parametrize(
    "more",
    [
        ("prior.kind=bym2",),
        ("prior.kind=leroux", "network.gamma=learn"),
        ("network.variant=amended", "training.draws=none", "network.standardise=false"),
        ("network.variant=printed", "auxiliary.by=phi"),
    ],
)
def test_every_kind_and_variant_becomes_an_artifact(fedkern, prior: Path, tmp_path: Path, more: tuple[str, ...]) -> None:
    if more[0] == "prior.kind=bym2":
        prior.write_text(prior.read_text().replace("phi = [0.0, 0.99]\n", ""))
    sets = [*more, "network.hidden=6", "network.local_hidden=5", "training.steps=20"]
    out = tmp_path / "out"
    done = fedkern("sigma", "train", prior, "--out", out, *options(*sets))
    assert done.code == 0, done.err
    server = read_server(out)
    own = read_client(out, "client-02", id=server.common.id)
    c = server.common
    sizes = {"hidden": c.hidden, "local_hidden": c.local_hidden, "width": c.width, "rank": c.rank}
    architecture = Architecture(c.variant, (len(own.scale),), 1, c.n_global, (own.n_local,), **sizes)
    decoder = Decoder(architecture, own.parts, own.scale)
    phi = np.full((5, 1), (c.condition.lo + c.condition.hi) / 2)
    hat = decoder.hat(np.ones((5, c.n_global)), np.ones((5, own.n_local)), c.condition.network(phi))
    assert hat.theta.shape == (5, 12)
    assert np.isfinite(hat.theta).all()
    if "network.gamma=learn" in more:
        assert c.gamma not in (0.5, 0.8)
    if "network.standardise=false" in more:
        assert (own.scale == 1).all()
    if "auxiliary.by=phi" in more:
        assert own.tau2.shape == (20, 12)
    assert server.common.kind == ("bym2" if "prior.kind=bym2" in more else "leroux" if "prior.kind=leroux" in more else "car")


class Pressed:
    """Signals of which one comes after some chunks."""

    after = 2

    def __init__(self) -> None:
        self.asked = 0

    def __enter__(self) -> Pressed:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    @property
    def pending(self) -> str | None:
        self.asked += 1
        return "SIGINT" if self.asked >= self.after else None


@pytest.mark.parametrize("damaged", [pytest.param(False, marks=pytest.mark.nightly), True])
def test_an_interrupted_training_goes_on_to_the_same_bits(
    fedkern, prior: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damaged: bool
) -> None:
    assert fedkern("sigma", "train", prior, "--out", tmp_path / "whole", "--quiet", *options()).code == 0
    out = tmp_path / "out"
    with monkeypatch.context() as patched:
        patched.setattr(train, "Signals", Pressed)
        patched.setattr(train, "KEPT_EVERY", -1.0)
        done = fedkern("sigma", "train", prior, "--out", out, *options())
    assert done.code == 3
    assert "stopped by SIGINT after 16 of 400 steps; --resume goes on" in done.err
    assert not (out / "manifest.json").exists()
    kept = sorted((out / "training" / "checkpoint").iterdir())
    assert [path.name for path in kept] == ["sigma-000001.ckpt", "sigma-000002.ckpt"]
    if damaged:
        kept[-1].write_bytes(kept[-1].read_bytes()[:-9])
    refused = fedkern("sigma", "train", prior, "--out", out, *options())
    assert refused.code == 2
    assert "holds an interrupted training; --resume goes on with it" in refused.err
    other = fedkern("sigma", "train", prior, "--out", out, "--resume", *options("training.seed=9"))
    assert other.code == 2
    assert "belongs to another job" in other.err
    assert fedkern("sigma", "train", prior, "--out", out, "--resume", "--quiet", *options()).code == 0
    assert files(out) == files(tmp_path / "whole")
    finished = fedkern("sigma", "train", prior, "--out", out, "--resume", *options())
    assert (finished.code, "has finished after 400 steps" in finished.err) == (2, True)
    again = fedkern("sigma", "train", prior, "--out", out, *options())
    assert (again.code, "holds a finished prior" in again.err) == (2, True)


FEW = ("training.steps=40", "training.batch=4")


@pytest.mark.parametrize(
    "more",
    [
        ("network.gamma=learn", "training.refresh=4"),
        pytest.param(("training.precision=float64", "training.draws=none"), marks=pytest.mark.nightly),
    ],
)
def test_a_training_on_a_device_is_that_of_a_processor(fedkern, prior: Path, tmp_path: Path, more: tuple[str, ...]) -> None:
    """On the grid emulator: the same numbers but for what is rounded; a network of float32 is rounded in each step."""
    few = ("training.steps=8", "training.batch=4")
    here = ("sigma", "train", prior, "--quiet", *options(*few, *more))
    assert fedkern(*here, "--out", tmp_path / "cpu").code == 0
    with hosted.instead_of_a_card() as card:
        assert fedkern(*here, "--out", tmp_path / "cuda", "--device", "cuda").code == 0
    assert any(name.startswith("climb<") for name in card.seen)  # a step of Adam
    for name in ("client-01", "client-02"):
        arrays = []
        for device in ("cpu", "cuda"):
            found = read_client(tmp_path / device, name, id=read_server(tmp_path / device).common.id)
            arrays.append(np.concatenate([np.ravel(part) for part in found.parts.values()]))
        tolerance = 1e-9 if "training.precision=float64" in more else 1e-4
        np.testing.assert_allclose(arrays[1], arrays[0], rtol=tolerance, atol=tolerance)
    said = json.loads((tmp_path / "cuda" / "manifest.json").read_text())["versions"]
    assert said["device"] == card.about()["device"]


def test_a_training_goes_on_where_it_began_alone(fedkern, prior: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, command = tmp_path / "out", ("sigma", "train", prior, *options(*FEW))
    with hosted.instead_of_a_card():
        assert fedkern(*command, "--out", tmp_path / "whole", "--device", "cuda").code == 0
        with monkeypatch.context() as patched:
            patched.setattr(train, "Signals", Pressed)
            patched.setattr(train, "KEPT_EVERY", -1.0)
            assert fedkern(*command, "--out", out, "--device", "cuda").code == 3
        refused = fedkern(*command, "--out", out, "--resume")
        assert refused.code == 2
        assert 'began with training.device = "cuda", and its bits are of that: resume it with --device cuda' in refused.err
        assert fedkern(*command, "--out", out, "--resume", "--device", "cuda").code == 0
    assert files(out) == files(tmp_path / "whole")


def test_nothing_to_resume(fedkern, prior: Path, tmp_path: Path) -> None:
    done = fedkern("sigma", "train", prior, "--out", tmp_path / "out", "--resume", *options())
    assert (done.code, "no checkpoint of a training is there" in done.err) == (2, True)


def test_a_training_that_diverges_says_where_and_keeps_a_checkpoint(fedkern, prior: Path, tmp_path: Path) -> None:
    more = ["network.start=random", "training.warmup=0.0", "training.learning_rate=1e38", "training.decay=0.0"]
    with np.errstate(all="ignore"):
        done = fedkern("sigma", "train", prior, "--out", tmp_path / "out", *options(*more))
    assert done.code == 2
    assert "iteration 2 has an objective or a gradient that is not finite" in done.err
    assert [path.name for path in (tmp_path / "out" / "training" / "checkpoint").iterdir()] == ["sigma-000001.ckpt"]
    calm = [*more[:2], "training.learning_rate=0.001"]
    assert fedkern("sigma", "train", prior, "--out", tmp_path / "out", "--resume", "--quiet", *options(*calm)).code == 0


def test_points_become_an_artifact(fedkern, tmp_path: Path) -> None:
    (tmp_path / "gp.toml").write_text('[prior]\nkind = "gp"\nlengthscale = [0.3, 0.9]\ngrid = {points = 12, cuts = [0.5]}\n')
    out = tmp_path / "out"
    done = fedkern("sigma", "train", tmp_path / "gp.toml", "--out", out, *options("auxiliary.by=phi"))
    assert done.code == 0, done.err
    one = read_client(out, "client-02")
    assert np.allclose(one.locations[:, 0], np.linspace(0, 1, 12)[6:])
    assert one.tau2.shape == (20, 6)
    assert one.common.condition.name == "lengthscale"
    assert (out / "report.html").read_text().count("<svg") == 4


def test_points_from_a_table(fedkern, tmp_path: Path) -> None:
    lines = ["site,x,y,owner", *(f"p{k},{0.1 * k},{0.05 * (k % 3)},{'ab'[k % 2]}" for k in range(10))]
    (tmp_path / "points.csv").write_text("\n".join(lines) + "\n")
    text = '[prior]\nkind = "gp"\nlengthscale = [0.01, 0.9]\n[data]\nareas = "points.csv"\nx = "x"\ny = "y"\nclient = "owner"\n'
    (tmp_path / "gp.toml").write_text(text)
    done = fedkern("sigma", "train", tmp_path / "gp.toml", "--out", tmp_path / "out", *options('data.area="site"'))
    assert done.code == 0, done.err
    assert "lengthscales from 0.01 are far below the spacing" in done.err
    one = read_client(tmp_path / "out", "b")
    assert one.areas == ("p1", "p3", "p5", "p7", "p9")
    assert one.locations.shape == (5, 2)
    (tmp_path / "points.csv").write_text("\n".join([*lines, "p10,0.1,0.05,b"]) + "\n")
    twice = fedkern("sigma", "train", tmp_path / "gp.toml", "--out", tmp_path / "new", *options())
    assert (twice.code, "the same point as line 3 (b); keep one of them" in twice.err) == (2, True)


CAR: dict[str, Any] = {"prior": {"kind": "car"}, "data": {"areas": "a.csv", "area": "a", "client": "c", "adjacency": "e.csv"}}
GP: dict[str, Any] = {"prior": {"kind": "gp", "lengthscale": [0.2, 1.0], "grid": {}}}


@pytest.mark.parametrize(
    ("raw", "sets", "text"),
    [
        (CAR, ["prior.phi=[0.0, 1.0]"], "the prior is proper below 1 only"),
        (CAR, ["prior.phi=[-0.1, 0.5]"], "wanted lo of at least 0"),
        (CAR, ["prior.phi=[0.5]"], "wanted [lo, hi] with lo < hi"),
        (CAR, ["prior.lengthscale=[0.1, 0.5]"], 'kind = "car" has no lengthscale'),
        (CAR, ["prior.gridd={}"], "did you mean prior.grid?"),
        (CAR, ["prior.grid={}"], 'prior.grid: kind = "car" is of areas'),
        (CAR, ["network.condition=log-unit"], 'needs phi from above 0; take "log-rest"'),
        (CAR, ["network.gamma=0"], 'wanted a number > 0, a standard deviation, or "learn"'),
        (CAR, ["training.draws=all"], 'a whole number of at least 1, or "none"'),
        (CAR, ["training.steps=0"], "training.steps = 0: wanted a number of at least 1"),
        (CAR, ["auxiliary.floor=200.0"], "auxiliary.floor: wanted below auxiliary.ceiling"),
        (CAR, ["fit.phi=[0.999]"], "fit.phi = 0.999: outside of its range [0, 0.99]"),
        (CAR, ["data.x=x"], "data: x and y go together"),
        (CAR, ["network.variant=amended", "network.start=analytic"], 'is for variant = "multiplicative"'),
        ({"prior": {"kind": "car"}}, [], "data: areas, area, client, adjacency missing"),
        ({"prior": {"kind": "ising"}}, [], 'wanted "car", "leroux", "bym2" or "gp"'),
        (CAR, ["prior.kind=bym2", "prior.phi=[0.0, 0.5]"], 'kind = "bym2" has no phi'),
        (CAR, ["prior.kind=bym2", "auxiliary.by=phi"], 'auxiliary.by = "phi": kind = "bym2" has no phi'),
        ({"prior": {"kind": "gp", "grid": {}}}, [], "prior.lengthscale is missing"),
        ({"prior": {"kind": "gp", "lengthscale": [0.2, 1.0]}}, [], "either prior.grid or data.areas"),
        (GP, ["prior.lengthscale=[0, 1]"], "prior.lengthscale = [0.0, 1.0]: wanted lo > 0"),
        (GP, ['prior.hyperprior={kind="logit-normal"}'], "is for phi in (0, 1)"),
        (GP, ["network.condition=log-rest"], 'not for a lengthscale; take "unit"'),
        (GP, ["data.adjacency=e.csv"], 'kind = "gp" has no neighbours'),
        (GP, ["prior.grid.cuts=[0.5, 0.2]"], "cuts in ascending order"),
    ],
)
def test_faults_of_a_prior_file(raw: dict[str, Any], sets: list[str], text: str) -> None:
    with pytest.raises(JobError) as caught:
        parse(raw, sets=sets)
    assert text in str(caught.value)


def test_defaults_and_the_published_settings() -> None:
    ours, theirs = parse(GP), parse({"prior": {"kind": "gp", "preset": "paper"}})
    assert (ours.network.variant, ours.network.start, ours.training.draws) == ("multiplicative", "analytic", "none")
    n, t = theirs.network, theirs.training
    assert (n.variant, n.hidden, n.global_latents, n.gamma, n.standardise, n.start) == ("printed", 16, 5, 0.5, False, "random")
    assert (t.steps, t.batch, t.learning_rate, t.decay, t.warmup, t.draws) == (20_000, 32, 1e-3, 0.0, 0.0, 10_000)
    assert theirs.prior.lengthscale == [0.2, 1.0]
    big = parse(CAR | {"prior": {"kind": "car", "preset": "paper"}})
    assert (big.network.hidden, big.network.local_hidden, big.training.steps, big.network.gamma) == (2024, 1048, 400_000, 0.03)
    assert big.prior.phi == [0.0, 0.99]
    assert parse(CAR, sets=["training.steps=7"]).identity == parse(CAR).identity
    assert parse(CAR, sets=["training.seed=7"]).identity != parse(CAR).identity


def test_files_that_cannot_be_read(fedkern, tmp_path: Path) -> None:
    for content, text in ((None, "cannot be read"), (b"[prior", "is no TOML"), (b"\xff\xfe", "is no UTF-8 text")):
        path = tmp_path / "prior.toml"
        if content is not None:
            path.write_bytes(content)
        done = fedkern("sigma", "train", path)
        assert (done.code, text in done.err) == (2, True)


def test_islands_are_told(fedkern, prior: Path, tmp_path: Path) -> None:
    areas = prior.with_name("areas.csv")
    areas.write_text(areas.read_text() + "99,client-01,0,9\n")
    done = fedkern("sigma", "train", prior, "--out", tmp_path / "out", *options("training.steps=1", "data.islands=independent"))
    assert done.code == 0, done.err
    assert "1 without neighbours, independent of all others: 99" in done.err
    assert read_server(tmp_path / "out").sizes == (13, 12)


def test_a_full_disk(fedkern, prior: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import errno
    import os

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    done = fedkern("sigma", "train", prior, "--out", tmp_path / "out", *options())
    assert done.code == 2
    assert "free some space there" in done.err


def test_the_loader_takes_paths_relative_to_the_file(prior: Path) -> None:
    config, folder = prior_config.load(prior)
    assert folder == prior.parent.resolve()
    assert config.data.adjacency == "edges.csv"
