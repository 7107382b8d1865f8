"""Links that somebody has put below `--out`: whatever a run does there, no file that is not its own changes content or mode."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

import fedkern as package
from fedkern.api import perform
from fedkern.errors import HolderError, JobError, LostPeer
from fedkern.jobs.run import Output
from fedkern.methods import load
from fedkern.transports.inprocess import InProcess
from support.command import StopsAt
from support.two_clients import TwoClients

OFTEN = {"checkpoint_every": 1e-6}
STATE = tuple[str, int, bytes]  # a path, its mode, its content


def state(folder: Path) -> list[STATE]:
    """Of all that lies there."""
    paths = [folder, *sorted(folder.rglob("*"))]
    return [(str(path), path.lstat().st_mode, path.read_bytes() if path.is_file() else b"") for path in paths]


def linked(name: Path, foreign: Path) -> None:
    name.symlink_to(foreign / ("folder" if name.suffix == "" and name.name != "secret" else "file"))


def dangling(name: Path, foreign: Path) -> None:
    name.symlink_to(foreign / "nothing")


def second_name(name: Path, foreign: Path) -> None:
    os.link(foreign / "file", name)


def foreign_in(root: Path) -> Path:
    """What is somebody else's: a file, and a folder with files of the names that a run may write in it."""
    foreign = root / "foreign"
    (foreign / "folder").mkdir(parents=True)
    for name in ("file", "folder/a.jsonl", "folder/rows.json", "folder/checkpoint-000001.ckpt", "folder/notes.txt"):
        (foreign / name).write_bytes(b"somebody else's\n")
        (foreign / name).chmod(0o644)
    return foreign


def interrupted(clients: TwoClients, kind: str, out: Path) -> Path:
    """A run that was stopped after its first round; the job."""
    path = clients.job(kind)
    config, folder = load(path, ["algorithm.checkpoint_every=1e-6"])
    with pytest.raises(LostPeer):
        perform(InProcess(signals=StopsAt(out / "metrics.jsonl", 1)), config, folder, Output(out, quiet=True))
    return path


def of_one_client(folder: Path) -> list[str]:
    """All names below a run's folder, of the server and of client a."""
    found = [str(path.relative_to(folder)) for path in sorted(folder.rglob("*"))]
    return [name for name in found if "client-b" not in name and not name.endswith("b.jsonl")]


def names_of_a_run(root: Path, kind: str) -> list[str]:
    """All names that a run has in its folder: while it goes and at its end."""
    path = interrupted(TwoClients(root), kind, root / "out")
    package.run(path, out=root / "whole", algorithm=OFTEN)
    shutil.rmtree(root / "data")
    more = {"client-a/holder.txt", f".summary.json.{os.getpid()}.part", f".job.json.{os.getpid()}.part"}
    return sorted(more.union(of_one_client(root / "out"), of_one_client(root / "whole")))


def harmed(root: Path, kind: str, plant: Callable[[Path, Path], None], names: list[str]) -> list[str]:
    """Names at which a link lets a run change what is not its own."""
    found = []
    clients = TwoClients(root)
    path = clients.job(kind)
    for n, name in enumerate(names):
        here = root / str(n)
        foreign, out = foreign_in(here), here / "out"
        for above in (out / name).relative_to(out).parents[:-1]:
            (out / above).mkdir(parents=True, exist_ok=True)
        out.mkdir(exist_ok=True)
        if name.startswith("client-a/"):
            (out / "client-a" / "job.json").write_text('{"run": {}}\n')  # as of a run before; else the folder is refused at once
            (out / "client-a" / name.partition("/")[2]).unlink(missing_ok=True)
        before = state(foreign)
        plant(out / name, foreign)
        with suppress(JobError):
            package.run(path, out=out, algorithm=OFTEN)
        if state(foreign) != before:
            found.append(name)
        shutil.rmtree(here)
    return found


@pytest.mark.parametrize("plant", [linked, *(pytest.param(way, marks=pytest.mark.nightly) for way in (dangling, second_name))])
def test_no_planted_link_changes_a_foreign_file(tmp_path: Path, plant: Callable[[Path, Path], None]) -> None:
    names = names_of_a_run(tmp_path, "pvi, private")
    assert len(names) > 20
    if plant is second_name:
        names = [name for name in names if "." in Path(name).name]
    assert harmed(tmp_path, "pvi, private", plant, names) == []


@pytest.mark.parametrize("kind", ["pvi, private", pytest.param("sparse", marks=pytest.mark.nightly)])
def test_nor_where_a_run_goes_on(tmp_path: Path, kind: str) -> None:
    """Each file and folder of an interrupted run was moved elsewhere, and is a link now."""
    out, clients = tmp_path / "out", TwoClients(tmp_path)
    path, found = interrupted(clients, kind, out), []
    names = of_one_client(out)
    for n, name in enumerate(names):
        here = tmp_path / str(n)
        shutil.copytree(out, here / "out")
        (here / "foreign").mkdir()
        (here / "out" / name).rename(here / "foreign" / "it")
        (here / "out" / name).symlink_to(here / "foreign" / "it")
        before = state(here / "foreign")
        config, folder = load(path, ["algorithm.checkpoint_every=1e-6"])
        with suppress(JobError):
            perform(InProcess(), config, folder, Output(here / "out", resume=True, quiet=True))
        found += [] if state(here / "foreign") == before else [name]
        shutil.rmtree(here)
    assert len(names) > 6
    assert found == []


class Swaps(StopsAt):
    """Puts a link in the place of a folder, while the run goes."""

    def __init__(self, out: Path, name: str, foreign: Path) -> None:
        super().__init__(out / "metrics.jsonl", 1)
        self.folder, self.foreign = out / name, foreign

    @property
    def pending(self) -> str | None:  # type: ignore[override]
        if super().pending and not self.folder.is_symlink():
            self.folder.rename(self.folder.with_name("moved"))
            self.folder.symlink_to(self.foreign / "folder")
        return None

    @pending.setter
    def pending(self, value: str | None) -> None:
        pass


@pytest.mark.parametrize("name", ["ledger", "checkpoint", "client-a", "client-a/checkpoint", "client-a/outbox"])
def test_nor_where_a_link_takes_the_place_of_a_folder_meanwhile(tmp_path: Path, name: str) -> None:
    path, out, foreign = TwoClients(tmp_path).job("pvi, private"), tmp_path / "out", foreign_in(tmp_path)
    before = state(foreign)
    config, folder = load(path, ["algorithm.checkpoint_every=1e-6", "job.rounds=4"])
    with suppress(JobError):  # what was open before stays so, and some of these runs end well
        perform(InProcess(signals=Swaps(out, name, foreign)), config, folder, Output(out, quiet=True))
    assert (out / name).is_symlink()
    assert state(foreign) == before


def test_the_way_to_the_folder_may_be_a_link(tmp_path: Path) -> None:
    path = TwoClients(tmp_path).job("pvi, private")
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to("disk")
    (tmp_path / "disk" / "elsewhere").mkdir()
    (tmp_path / "disk" / "out").symlink_to("elsewhere")
    out = tmp_path / "link" / "out"
    result = package.run(path, out=out, output={"client_folder": str(tmp_path / "link" / "own")})
    assert package.load(out).parameters == result.parameters
    assert (tmp_path / "disk" / "own" / "client-a" / "job.json").exists()
    with pytest.raises(JobError, match="has finished"):
        package.run(path, out=out)


def test_what_a_link_is_told(tmp_path: Path) -> None:
    path, out = TwoClients(tmp_path).job("pvi, open"), tmp_path / "out"
    (out / "ledger").mkdir(parents=True)
    (out / "ledger" / "a.jsonl").symlink_to(tmp_path / "nothing")
    wanted = r"a\.jsonl: it is a link, and a run writes into plain files .* alone; remove it, or choose another folder with --out"
    with pytest.raises(JobError, match=wanted):
        package.run(path, out=out)
    (out / "ledger" / "a.jsonl").unlink()
    os.link(path, out / "ledger" / "a.jsonl")
    with pytest.raises(JobError, match="it has a second name"):
        package.run(path, out=out)


@pytest.mark.parametrize("kind", ["pvi, private", "pvi, open"])
def test_a_folder_that_no_run_has_left_is_not_closed(tmp_path: Path, kind: str) -> None:
    """A client's own folder that is somebody's own work stays as it is, and so does a link to it."""
    path, own = TwoClients(tmp_path).job(kind), tmp_path / "out" / "client-a"
    own.mkdir(parents=True, mode=0o755)
    (own / "thesis.txt").write_text("years of work\n")
    before = state(own)
    with pytest.raises(HolderError, match="was there before, and no run of fedkern has left it") as caught:
        package.run(path, out=tmp_path / "out")
    assert str(tmp_path) not in caught.value.told
    own.rename(tmp_path / "mine")
    own.symlink_to(tmp_path / "mine")
    with pytest.raises(JobError, match="client-a: it is a link"):
        package.run(path, out=tmp_path / "out")
    own.unlink()
    (tmp_path / "mine").rename(own)
    assert state(own) == before
    (own / "thesis.txt").unlink()
    (own / "holder.txt").write_text("a refusal before\n")
    package.run(path, out=tmp_path / "out")
    assert own.stat().st_mode & 0o777 == 0o700


@pytest.mark.skipif(os.geteuid() != 0, reason="needs two users")
def test_a_folder_of_another_user(tmp_path: Path) -> None:
    path, own = TwoClients(tmp_path).job("pvi, private"), tmp_path / "out" / "client-a"
    own.mkdir(parents=True)
    os.chown(own, 12345, -1)
    with pytest.raises(HolderError, match="belongs to another user"):
        package.run(path, out=tmp_path / "out")


def test_the_umask_widens_nothing(tmp_path: Path) -> None:
    path, before = TwoClients(tmp_path).job("pvi, open"), os.umask(0)
    try:
        package.run(path, out=tmp_path / "out", algorithm=OFTEN)
    finally:
        os.umask(before)
    assert not [found for found in (tmp_path / "out").rglob("*") if found.stat().st_mode & 0o022]
    assert (tmp_path / "out").stat().st_mode & 0o022 == 0
