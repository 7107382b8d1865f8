"""Prior artifacts: what is written is what is read, each party's file holds its own part only, and no wrong file is taken."""

from __future__ import annotations

import errno
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedkern.data.artifact import ClientFile, Common, read_client, read_server, safe_names, write
from fedkern.errors import JobError
from fedkern.models.spatial.condition import Condition, Hyperprior
from fedkern.models.spatial.loadings import MeanLoadings
from fedkern.models.spatial.site import Auxiliary
from support.refusal import refusal

CONDITION = Condition("phi", 0.0, 0.99, hyperprior=Hyperprior("logit-normal", 0.0, 2.0))
COMMON = Common("ab" * 32, "car", CONDITION, "printed", 2, 3, 3, 4, 1, 0.1)
NAMES = ("New South Wales", "Tas", "a/b")


def client(k: int, common: Common = COMMON, tau: int = 1) -> ClientFile:
    d, g = k + 2, np.random.default_rng(k)
    # 2 global latents, 2 local ones, 3 hidden units, phi: [3 -> 3 -> 3], [3 -> 3 -> 3 -> 4], [3 + 2 + 1 -> d]
    parts = {"global_decoder": g.normal(size=24), "prior": g.normal(size=40), "decoder": g.normal(size=d * 7)}
    grid = np.linspace(0.1, 0.9, tau)
    return ClientFile(
        common,
        NAMES[k],
        k,
        2,
        0.5 + g.random(d),
        parts,
        0.1 + g.random((tau, d)),
        grid,
        1 + g.random(d),
        tuple(f"{k}.{i}" for i in range(d)),
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path / "prior", COMMON, [client(k) for k in range(3)], versions={"fedkern": "1"})
    return tmp_path / "prior"


def test_what_is_written_is_read(folder: Path) -> None:
    server = read_server(folder)
    assert (server.common, server.clients, server.sizes, server.n_local) == (COMMON, NAMES, (2, 3, 4), (2, 2, 2))
    for k, name in enumerate(NAMES):
        made, read = client(k), read_client(folder, name, id=COMMON.id)
        assert (read.common, read.name, read.index, read.areas, read.locations) == (COMMON, name, k, made.areas, None)
        for key in ("scale", "tau2", "tau_grid", "true_variance"):
            assert np.array_equal(getattr(read, key), getattr(made, key))
        assert read.parts.keys() == made.parts.keys()
        assert all(np.array_equal(read.parts[part], made.parts[part]) for part in made.parts)
        assert read.digest == server.digests[k]  # what a server can compare with what a client says it has
        assert np.array_equal(server.true_variance[k], made.true_variance)


def test_a_file_alone_is_enough(folder: Path, tmp_path: Path) -> None:
    alone = tmp_path / "mine.npz"
    shutil.copy(folder / "clients" / "Tas.npz", alone)
    assert read_client(alone, "Tas").areas == client(1).areas
    assert read_server(folder / "server.npz").clients == NAMES


def test_locations_and_tau_by_phi(tmp_path: Path) -> None:
    one = replace(client(0, tau=3), areas=(), locations=np.array([[0.0], [0.5]]))
    write(tmp_path, COMMON, [one])
    read = read_client(tmp_path, NAMES[0])
    assert np.array_equal(read.locations, one.locations)
    at = Auxiliary(read.tau2, read.tau_grid).at(np.array([0.0, 0.1, 0.3, 0.9, 1.0]))[0]
    halfway = (one.tau2[0] + one.tau2[1]) / 2
    assert np.allclose(at, [one.tau2[0], one.tau2[0], halfway, one.tau2[2], one.tau2[2]], rtol=1e-12)
    constant = Auxiliary(client(0).tau2, client(0).tau_grid).at(np.array([0.2, 0.7]))[0]
    assert np.array_equal(constant, np.vstack([client(0).tau2] * 2))


def test_the_same_content_gives_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    write(tmp_path / "again", COMMON, [client(k) for k in range(3)], versions={"fedkern": "1"})
    for path in folder.rglob("*.*"):
        assert path.read_bytes() == (tmp_path / "again" / path.relative_to(folder)).read_bytes()


def test_a_client_s_file_has_nothing_of_the_others(folder: Path) -> None:
    """Digests of arrays: no array of a client is in another's file, nor any of the clients' in the server's but variances."""
    held = {}
    for path in sorted(folder.rglob("*.npz")):
        with np.load(path) as archive:
            held[path.name] = {name: archive[name].tobytes() for name in archive.files if name not in ("meta", "tau_grid")}
    files = list(held)
    assert len(files) == 4
    for one in files:
        for other in files:
            if one != other:
                assert not set(held[one].values()) & set(held[other].values()), (one, other)
    assert set(held["server.npz"]) == {"true_variance"}
    assert not any("global_encoder" in name for names in held.values() for name in names)
    for k, name in enumerate(NAMES):
        text = (folder / "clients" / f"{safe_names(NAMES)[k]}.npz").read_bytes()
        assert not any(other.encode() in text for other in NAMES if other != name)


def test_parts_of_another_client_cannot_be_put_in() -> None:
    for part in ("global_encoder", "decoder[1]"):
        with pytest.raises(ValueError, match="known parts"):
            replace(client(0), parts={part: np.ones(3)})


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"true_variance": np.ones(3)}, "true_variance has shape"),
        ({"tau2": -np.ones((1, 2))}, "tau2 > 0"),
        ({"tau2": np.full((1, 2), np.nan)}, "finite"),
        ({"tau_grid": np.array([0.5, 0.5]), "tau2": np.ones((2, 2))}, "increasing"),
        ({"areas": ("a",)}, "names or locations of 2"),
        ({"parts": {"prior": np.ones(41)}}, "prior has 41 parameters; wanted 40"),
        ({"parts": {"prior": np.ones((2, 2))}}, "vectors"),
    ],
)
def test_files_that_do_not_fit_together(change: dict[str, object], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        replace(client(0), **change)


def test_another_client_s_file(folder: Path, tmp_path: Path) -> None:
    with refusal(JobError, "Tas", "a/b"):
        read_client(folder / "clients" / "Tas.npz", "a/b")
    with refusal(JobError, "New", "South", "Wales", "Tas", "Vic"):
        read_client(folder, "Vic")


def test_another_artifact_s_file(folder: Path, tmp_path: Path) -> None:
    other = replace(COMMON, id="cd" * 32)
    write(tmp_path / "other", other, [client(k, other) for k in range(3)])
    with pytest.raises(JobError, match=r"belongs to prior cdcdcdcdcdcd, the job uses abababababab"):
        read_client(tmp_path / "other", "Tas", id=COMMON.id)
    shutil.copy(tmp_path / "other" / "clients" / "Tas.npz", folder / "clients" / "Tas.npz")
    with pytest.raises(JobError, match=r"Tas.npz: was altered or belongs to another prior"):
        read_client(folder, "Tas")


def test_the_wrong_role(folder: Path) -> None:
    with pytest.raises(JobError, match=r"is a file for the server, wanted one for the client"):
        read_client(folder / "server.npz", "Tas")
    with pytest.raises(JobError, match=r"is a file for the client, wanted one for the server"):
        read_server(folder / "clients" / "Tas.npz")


def test_altered_files(folder: Path) -> None:
    path = folder / "server.npz"
    whole = path.read_bytes()
    for content in (whole[:-1], whole[: len(whole) // 2], b"", whole[:200] + bytes([whole[200] ^ 1]) + whole[201:]):
        path.write_bytes(content)
        with pytest.raises(JobError, match="was altered"):
            read_server(folder)
    for content in (whole[: len(whole) // 2], b"", b"no npz"):
        path.write_bytes(content)
        with pytest.raises(JobError, match="no file of a prior artifact"):
            read_server(path)
    path.unlink()
    with pytest.raises(JobError, match="cannot be read"):
        read_server(folder)


def test_no_artifact(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(JobError, match=r"holds no prior artifact \(no manifest.json\)"):
        read_server(tmp_path / "nothing")
    manifest = json.loads((folder / "manifest.json").read_text())
    for content in ("{", "[]", json.dumps(manifest | {"format": 2}), json.dumps(manifest | {"digests": 1})):
        (folder / "manifest.json").write_text(content)
        with pytest.raises(JobError, match="no manifest of format 1"):
            read_client(folder, "Tas")
    (folder / "manifest.json").write_text(json.dumps(manifest | {"digests": {}}))
    with pytest.raises(JobError, match="was altered"):
        read_client(folder, "Tas")


def test_units_are_in_every_file(folder: Path) -> None:
    for path in folder.rglob("*.npz"):
        with np.load(path) as archive:
            units = json.loads(archive["meta"].tobytes())["units"]
        assert units["gamma"].startswith("standard deviation")
        assert units["tau2"].startswith("variance")
    assert json.loads((folder / "manifest.json").read_text())["units"] == units


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(JobError, match="No space left"):
        write(tmp_path, COMMON, [client(0)])
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_mean_loadings_are_the_servers_and_may_be_absent(tmp_path: Path, folder: Path) -> None:
    assert read_server(folder).mean_loadings is None  # as in files of before they were kept
    g = np.random.default_rng(0)
    made = MeanLoadings(np.array([0.1, 0.5]), g.random((2, COMMON.n_global)))
    server = write(tmp_path / "more", COMMON, [client(k) for k in range(3)], mean_loadings=made)
    read = read_server(tmp_path / "more").mean_loadings
    assert server.mean_loadings is made
    assert read is not None
    np.testing.assert_array_equal(read.phi, made.phi)
    np.testing.assert_array_equal(read.values, made.values)
    with pytest.raises(ValueError, match="mean loadings have shape"):
        write(tmp_path / "wrong", COMMON, [client(k) for k in range(3)], mean_loadings=MeanLoadings(made.phi, g.random((2, 1))))


def test_names_of_files() -> None:
    assert safe_names(["a", "a/b", "a_b", "..", "New York"]) == ["a", "a_b-1", "a_b-2", "_", "New_York"]
