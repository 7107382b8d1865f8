"""What only a client may see lies in its own folder, and nobody else on the machine can read it."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fedkern as package
from fedkern.api import perform
from fedkern.errors import HolderError, LostPeer
from fedkern.jobs.files import RunFolder
from fedkern.jobs.hooks import RunHooks
from fedkern.jobs.run import Output
from fedkern.methods import load
from fedkern.transports.inprocess import InProcess
from support import sigma_artifacts
from support.command import StopsAt
from support.two_clients import JOBS, TwoClients

KINDS = [kind for kind in JOBS if kind != "sigma"]


@pytest.fixture
def clients(tmp_path: Path) -> TwoClients:
    return TwoClients(tmp_path)


@pytest.fixture(params=[0o000, 0o027, 0o577], ids=oct)
def umask(request: Any) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def own(out: Path) -> list[Path]:
    """Everything in the clients' own folders, each of which is its owner's alone and says something about its rows."""
    homes = sorted(out.glob("client-*"))
    assert homes
    found = [path for home in homes for path in (home, *home.rglob("*"))]
    for path in found:
        assert mode(path) == (0o700 if path.is_dir() else 0o600), path
    assert all((home / "rows.json").exists() for home in homes)
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_they_are_closed_in_every_method(clients: TwoClients, kind: str) -> None:
    path = clients.job(kind)
    before = os.umask(0)
    try:
        package.run(path, out=clients.root / "out", algorithm={"checkpoint_every": 1e-6})
    finally:
        os.umask(before)
    names = {path.name for path in own(clients.root / "out")}
    assert {"checkpoint", "rows.json"} <= names
    assert "private" not in kind or {"outbox", "job.json", "certificate.json", "account.json", "budget.jsonl"} <= names
    assert (clients.root / "out" / "summary.json").stat().st_mode & 0o044, "what is published may be read"
    for checkpoint in (clients.root / "out" / "checkpoint").iterdir():
        assert mode(checkpoint) == 0o600


def test_they_are_closed_in_a_map(tmp_path: Path) -> None:
    sigma_artifacts.written(tmp_path / "prior")
    sigma_artifacts.counts(tmp_path / "rows")
    (tmp_path / "job.toml").write_text(
        '[job]\nmethod = "sigma"\nrounds = 10\n[data]\nclients = ["rows/*.csv"]\narea = "district"\nresponse = "cases"\n'
        'exposure = "expected"\n[model]\nprior = "prior"\n'
    )
    package.run(tmp_path / "job.toml", out=tmp_path / "out")
    assert {"rows.json", "areas.csv", "areas.json"} <= {path.name for path in own(tmp_path / "out")}


def test_a_fault_of_a_private_job_is_the_clients_too(fedkern: Any, clients: TwoClients, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedkern.methods.pvi.run.Local", lambda *arguments, **more: 1 / 0)
    before = os.umask(0)
    try:
        with pytest.raises(ZeroDivisionError):
            package.run(clients.job("pvi, private"), out=clients.root / "out")
        keeper = RunHooks(load(clients.root / "job.toml")[0], ("a", "b"), RunFolder(clients.root / "out", ("a", "b")))
        keeper.clients = (0,)
        assert "ZeroDivisionError" not in keeper.public(ZeroDivisionError())
    finally:
        os.umask(before)
    assert clients.root / "out" / "client-a" / "holder.txt" in own(clients.root / "out")


def test_whatever_the_umask(clients: TwoClients, umask: int) -> None:
    os.umask(0o022)
    path = clients.job("pvi, private")
    (clients.root / "out").mkdir()
    os.umask(umask)
    package.run(path, out=clients.root / "out")
    own(clients.root / "out")


def test_folders_of_an_interrupted_run_are_mended(clients: TwoClients) -> None:
    """And nothing that they link to."""
    path, out = clients.job("pvi, private"), clients.root / "out"
    config, folder = load(path, ["algorithm.checkpoint_every=1e-6"])
    with pytest.raises(LostPeer):
        perform(InProcess(signals=StopsAt(out / "metrics.jsonl", 1)), config, folder, Output(out, quiet=True))
    for place in (out / "client-a", *(out / "client-a").rglob("*")):
        place.chmod(0o777)
    outside = clients.root / "outside"
    outside.mkdir(mode=0o755)
    (outside / "file").write_text("")
    (outside / "file").chmod(0o644)
    (out / "client-a" / "link").symlink_to(outside)
    (out / "client-a" / "other").symlink_to(outside / "file")
    perform(InProcess(), config, folder, Output(out, resume=True, quiet=True))
    assert (mode(outside), mode(outside / "file")) == (0o755, 0o644)
    for name in ("link", "other"):
        (out / "client-a" / name).unlink()
    own(out)


def no_modes(monkeypatch: pytest.MonkeyPatch, place: Path, *, silent: bool) -> None:
    """A disk that keeps no modes, and says so or not."""
    real, there = os.fchmod, os.fstat

    def on_it(file: int) -> bool:
        return Path(os.readlink(f"/proc/self/fd/{file}")).is_relative_to(place)

    def fchmod(file: int, bits: int) -> None:
        if not on_it(file):
            real(file, bits)
        elif not silent:
            raise PermissionError(1, "Operation not permitted")

    def look(file: int) -> os.stat_result:
        found = there(file)
        return os.stat_result((found.st_mode | 0o055, *found[1:])) if on_it(file) else found

    monkeypatch.setattr(os, "fchmod", fchmod)
    monkeypatch.setattr(os, "fstat", look)


@pytest.mark.parametrize("silent", [True, False])
def test_a_disk_that_keeps_no_modes_ends_a_private_job(
    fedkern: Any, clients: TwoClients, monkeypatch: pytest.MonkeyPatch, silent: bool
) -> None:
    path = clients.job("pvi, private")
    no_modes(monkeypatch, clients.root / "disk", silent=silent)
    ended = fedkern("run", path, "--out", clients.root / "disk" / "out", "--quiet")
    assert ended.code == 2
    assert "client 'a': " in ended.err
    assert "cannot be closed to other users of this machine" in ended.err
    assert "output.client_folder = PATH" in ended.err
    assert not [*(clients.root / "disk").rglob("summary.json"), *(clients.root / "disk").rglob("rows.json")]
    sets = ("--set", "output.client_folder=own")
    ended = fedkern("run", path, "--out", clients.root / "disk" / "out", "--quiet", *sets)
    assert (ended.code, ended.err) == (0, "")
    assert {"rows.json", "outbox", "certificate.json"} <= {found.name for found in own(clients.root / "own")}
    assert not [*(clients.root / "disk" / "out").glob("client-*/rows.json")]
    ended = fedkern("run", path, "--out", clients.root / "disk" / "another", "--quiet", *sets)
    assert (ended.code, "choose another --out and output.client_folder" in ended.err) == (2, True)


def test_and_is_said_in_an_open_one(fedkern: Any, clients: TwoClients, monkeypatch: pytest.MonkeyPatch) -> None:
    no_modes(monkeypatch, clients.root / "disk", silent=True)
    ended = fedkern("run", clients.job("pvi, open"), "--out", clients.root / "disk" / "out", "--quiet")
    assert ended.code == 0
    assert [line.split(":")[1] for line in ended.err.splitlines()] == [" client 'a'", " client 'b'"]
    assert ended.err.count("output.client_folder = PATH") == 2


def test_other_parties_do_not_read_the_path(clients: TwoClients, monkeypatch: pytest.MonkeyPatch) -> None:
    no_modes(monkeypatch, clients.root / "disk", silent=True)
    config, folder = load(clients.job("pvi, private"))
    with pytest.raises(HolderError) as caught:
        perform(InProcess(), config, folder, Output(clients.root / "disk" / "out", quiet=True))
    assert str(clients.root) not in caught.value.told
    assert "client_folder = PATH" in caught.value.told


def test_an_interrupted_run_goes_on_in_a_folder_of_the_clients_own(clients: TwoClients) -> None:
    config, folder = load(clients.job("pvi, private"), ["output.client_folder=../own", "algorithm.checkpoint_every=1e-6"])
    out = clients.root / "out"
    with pytest.raises(LostPeer):
        perform(InProcess(signals=StopsAt(out / "metrics.jsonl", 1)), config, folder, Output(out, quiet=True))
    result = perform(InProcess(), config, folder, Output(out, resume=True, quiet=True))
    assert result is not None
    assert result.summary["rounds"] == 2
    own(clients.root.parent / "own")


@pytest.mark.usefixtures("undrawn")
def test_the_report_leaves_out_what_it_may_not_read(fedkern: Any, clients: TwoClients, monkeypatch: pytest.MonkeyPatch) -> None:
    out = clients.root / "out"
    package.run(clients.job("pvi, open"), out=out)
    for name in ("a", "b"):
        (out / f"client-{name}" / "areas.csv").write_text(f"area,theta_mean\n{name},1\n")
    real = Path.open

    def closed(path: Path, *arguments: Any, **more: Any) -> Any:
        if "client-a" in path.parts or path.name == "a.jsonl":
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, *arguments, **more)

    monkeypatch.setattr(Path, "open", closed)
    ended = fedkern("report", out)
    assert (ended.code, ended.err) == (0, "")
