"""What `fedkern check --latency` says of a job beside what its run over a relay needs, on a wire with a clock of its own."""

import re

import pytest
from threadpoolctl import threadpool_limits

from fedkern.api import check_job, perform
from fedkern.cli.__main__ import main as command
from fedkern.jobs.run import Output
from fedkern.methods import load
from fedkern.transports.driver import Timeouts
from fedkern.transports.inprocess import InProcess
from support.golden_jobs import golden_jobs
from support.relayed import Clocked, over_threads

GOLDEN = golden_jobs()
# job -> requests that wait for one another, in the run and as `check` bounds them; what it says of it besides
JOBS = {
    "pvi-sequential": (19, 24, "usually about"),
    "pvi-synchronous-weighted": (16, 23, "usually about"),
    "pvi-global-vi": (22, 24, "usually about"),
    "pvi-private-budget": (None, None, None),
    "pvi-private-truncated": (15, 21, None),
    "sparse-sums": (52, 58, "usually about"),
    "sparse-regression": (175, 184, "usually about"),  # with runs that are without one client each
    "likelihood-formula": (25, 73, "usually about"),  # a first round is three questions, asked anew with more nodes twice at most
    "vertical-mean-field": (38, 41, "exactly"),
    "vertical-power": (69, 73, "exactly"),
    "vertical-amortised": (39, 43, "exactly"),
    "vertical-soul": (37, 38, None),
}


def said(job, folder, latency):
    """What `check` says: requests to each site, those one after another, seconds, bytes around them; how many it takes."""
    base, *sets = GOLDEN.JOBS[job]
    config, where = load(str(folder / f"{base}.toml"), sets)
    lines = check_job(InProcess(), config, where, latency=latency)
    start = next(i for i, line in enumerate(lines) if line.startswith("over a relay, at"))
    numbers = [
        re.search(r"at most ([\d,.]+)", line)[1].replace(",", "") for line in lines[start + 1 : start + 6] if "most" in line
    ]
    takes = [re.search(r"of these it takes +(exactly|usually about) ([\d,]+), and", line) for line in lines]
    expected = next(((one[1], int(one[2].replace(",", ""))) for one in takes if one), (None, None))
    return config, where, [float(number) for number in numbers], expected


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("golden")
    GOLDEN.write(path)
    return path


@pytest.mark.parametrize("job", JOBS)
def test_no_job_needs_more_than_was_said(job, folder, tmp_path, monkeypatch):
    monkeypatch.setattr("fedkern.transports.relay.EVERY", 600.0)  # a slow machine asks sites that wait more often
    config, where, (site, path, seconds, around), (how, expected) = said(job, folder, 0.02)
    names = ("ada", "bo", "cy")[: 2 if job.startswith("vertical") else 3]

    def main(place, name):
        perform(place, config, where, Output(tmp_path / (name or "server"), quiet=True))
        return 0

    with threadpool_limits(1, user_api="blas"):
        codes, words, wire = over_threads(main, names, None, Timeouts(lost=2400.0, grace=5.0), busy=600.0, wire=Clocked)
    assert (set(codes.values()), words) == ({0}, [])
    asked = [sum(name == one and n > 0 for one, n in wire.sent) for name in names]
    by_chance = job == "pvi-private-budget"
    assert (sum(asked) / len(asked) if by_chance else max(asked)) <= site
    assert max(asked) <= wire.now <= path
    assert max(wire.around.values()) <= around
    assert seconds == pytest.approx(0.02 * path, rel=0.01)
    if JOBS[job][0]:
        assert (wire.now, path, how) == JOBS[job]
    if how == "exactly":
        assert wire.now == expected
    elif how is not None:
        assert expected <= path


@pytest.mark.parametrize("latency", ["-1", "soon", "nan", "inf"])
def test_a_latency_that_is_none_is_refused(latency, folder, capsys):
    with pytest.raises(SystemExit, match="2"):
        command(["check", str(folder / "pvi/gaussian.toml"), f"--latency={latency}"])
    assert f"wanted seconds, 0 or more, not '{latency}'" in capsys.readouterr().err


def test_a_check_without_latency_says_nothing_of_a_relay(folder):
    config, where = load(str(folder / "pvi/gaussian.toml"))
    assert not any("relay" in line for line in check_job(InProcess(), config, where))
