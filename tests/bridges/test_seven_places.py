"""Every method and schedule at seven places: each gives the digest of one process.

    FEDKERN_NVFLARE=/opt/nvflare/bin/python FLOWER_BIN=/opt/flower/bin pytest -m nightly -v bridges/test_seven_places.py

NVFlare and Flower stand in environments of their own; the places of an engine that is not there are skipped.
"""

import json
from pathlib import Path

import pytest

from fedkern.bridges.digest import digest_of
from fedkern.methods import load
from support import flower
from support.flare import ENGINE, bridge, over_tls, simulate
from support.parties import Parties, write_parties
from support.seven_places import CASES, OverFlower, over_mpi, over_threads

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1500)]
SITES = ("ada", "bo", "cy")
NVFLARE = pytest.mark.skipif(not ENGINE, reason="FEDKERN_NVFLARE names no Python that has NVFlare")
FLOWER = pytest.mark.skipif(not flower.is_there(), reason="FLOWER_BIN names no folder that has Flower's commands")
BEGUN = "requests with a reply"
SELDOM = "algorithm.checkpoint_every=1e6"  # a place that takes minutes would send messages of checkpoints, too


class Jobs:
    """All cases in folders of their parties, with what one process gives of each, computed once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.parties: dict[str, Parties] = {
            name: write_parties(folder, case.job, *case.sets, SELDOM, name=name, apart=True) for name, case in CASES.items()
        }
        self._known: dict[str, tuple[str, object]] = {}

    def expect(self, name: str, out: Path, said: str) -> None:
        """Compares the result in a folder with that of one process."""
        assert (out / "summary.json").exists(), said
        summary = json.loads((out / "summary.json").read_text())
        if name not in self._known:
            self._known[name] = self.parties[name].perform()
        digest, wire = self._known[name]
        assert summary["wire"] == wire
        if equal := CASES[name].equal:
            assert (summary["digest"] == digest) == (equal == "digest")


@pytest.fixture(scope="module")
def jobs(tmp_path_factory):
    return Jobs(tmp_path_factory.mktemp("places"))


@pytest.fixture(scope="module")
def ranks(jobs):
    return over_mpi(jobs.folder, jobs.parties)


@pytest.mark.parametrize("name", CASES)
def test_mpi(name, jobs, ranks):
    jobs.expect(name, ranks.get(name, Path("none")), "no result")


@pytest.mark.parametrize("name", CASES)
def test_a_relay_over_threads(name, jobs):
    code, said, _, out = over_threads(jobs.parties[name])
    assert code == 0
    jobs.expect(name, out, " ".join(said))


def flares(jobs, name):
    """Returns the engine's folder of a job, and the folder of its next result."""
    parties = jobs.parties[name]
    digest = digest_of(load(parties.server)[0]).hex()
    return f"flare-{name}", parties.server.parent / "runs" / digest[:12]


@NVFLARE
@pytest.mark.parametrize("name", CASES)
def test_nvflares_simulator(name, jobs):
    folder, out = flares(jobs, name)
    bridge(jobs.parties[name].server, jobs.folder / folder)
    link = jobs.folder / "parties" / "simulator_server"
    link.exists() or link.symlink_to("server")
    said = simulate(jobs.folder, jobs.parties[name].sites, folder)
    jobs.expect(name, out, said)


@pytest.fixture(scope="module")
def with_tls(jobs, request):
    """What came of the jobs that are asked for (-k), in one federation, one after another."""
    asked = [item.callspec.params["name"] for item in request.session.items if item.originalname == "test_nvflare_with_tls"]
    (jobs.folder / "tls-jobs").mkdir()
    for name in asked:
        bridge(jobs.parties[name].server, jobs.folder / "tls-jobs" / name)
    said = over_tls(jobs.folder, "none", "--in-turn", jobs=[f"tls-jobs/{name}" for name in asked], timeout=1400)
    return {one["job"]: one for one in said}


@NVFLARE
@pytest.mark.parametrize("name", CASES)
def test_nvflare_with_tls(name, jobs, with_tls):
    said = with_tls[name]
    assert said["ended"]
    first = flares(jobs, name)[1]  # a job that is refused makes no folder
    out = max(first.parent.glob(f"{first.name}*"), key=lambda path: path.stat().st_mtime, default=first)
    jobs.expect(name, out, str(said))


@pytest.fixture(scope="module")
def simulation(jobs):
    place = OverFlower(jobs.folder, SITES, simulated=True)
    with place.federation:
        yield place


@pytest.fixture(scope="module")
def superlink(jobs):
    place = OverFlower(jobs.folder, SITES, simulated=False)
    with place.federation:
        yield place


@FLOWER
@pytest.mark.parametrize("name", CASES)
def test_flowers_simulation(name, jobs, simulation):
    said, out = simulation.run(jobs.parties[name])
    jobs.expect(name, out, said)


@FLOWER
@pytest.mark.parametrize("name", CASES)
def test_a_superlink_with_tls(name, jobs, superlink):
    said, out = superlink.run(jobs.parties[name])
    jobs.expect(name, out, said)
