"""How many different questions a client with secure sums answers: as many as the job has, however often a server asks."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedkern
from fedkern.algorithms.core import masked, once
from fedkern.algorithms.core.masked import Hider
from fedkern.algorithms.core.messages import RemoteFault
from fedkern.algorithms.exchanges.sums import AskPearson, PearsonSums
from fedkern.api import check_job
from fedkern.errors import JobError
from fedkern.jobs.holding.questions import MOST_ENDS, STARTS, Questions
from fedkern.jobs.stage import Stage
from fedkern.methods import load
from fedkern.privacy.masks import Pairs, public_key
from fedkern.transports.inprocess import InProcess
from support.secure_jobs import job

Keys = dict[str, dict[str, Any]]
FAST: Keys = {"output": {"draws": 20, "chains": 2}}
JOBS: dict[str, tuple[str, Keys]] = {
    "pvi": ("pvi", FAST),
    "pvi until": ("pvi", FAST | {"model": {"family": "gaussian"}, "job": {"rounds": "until"}}),
    "global-vi": ("pvi", FAST | {"algorithm": {"variant": "global-vi"}, "job": {"rounds": 9}}),
    "likelihood": ("likelihood", {"job": {"rounds": 3}}),
    "hmc": ("likelihood", {"algorithm": {"sampler": "hmc", "burn_in": 20}, "job": {"rounds": 60}}),
    "sfvi": ("sigma", {"algorithm": {"inference": "sfvi"}, "job": {"rounds": 30}}),
    "chains of a map": ("sigma", {"algorithm": {"inference": "hmc", "burn_in": 10}, "job": {"rounds": 30}}),
    "sparse": ("sparse", {"job": {"rounds": 40}, "algorithm": {"burn_in": 10}}),
}


def listed(said: str) -> dict[str, int]:
    """Kind of a question -> how often it comes at most, as `fedkern check` has it."""
    begin = said.index("each client answers these questions about sums")
    lines = [re.fullmatch(r"  ([\w-]+): (.*)", line) for line in said[begin:].splitlines()]
    found = {}
    for line in filter(None, lines):
        kinds = re.findall(r"(\w+) ([\d,]+)", line[2])
        found |= {f"{line[1]}-{kind}": int(n.replace(",", "")) for kind, n in kinds}
    return found


def counts(home: Path) -> dict[str, Counter[str]]:
    """Client -> kind -> the number of different questions in its account."""
    found: dict[str, Counter[str]] = {}
    for path in home.glob("*/questions/*/*"):
        found.setdefault(path.parts[-4], Counter())[path.name] += len(path.read_bytes()) // 16
    return found


@pytest.mark.parametrize("case", JOBS)
def test_an_honest_job_asks_no_more_than_check_says_and_the_same_again(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    method, keys = JOBS[case]
    home = tmp_path / "homes"
    monkeypatch.setenv("FEDKERN_CLIENT_HOME", str(home))
    monkeypatch.chdir(tmp_path)
    path = job(tmp_path, method)
    sections = keys | {"job": {"sums": "secure"} | keys.get("job", {})}
    config, folder = load(path, sections=sections)
    most = listed("\n".join(check_job(InProcess(), config, folder) or []))
    digests, found = list[str](), list[dict[str, Counter[str]]]()
    for start in range(2):
        digests.append(fedkern.run(path, out=tmp_path / f"out-{start}", **sections).digest)
        found.append(counts(home))
        assert len(found[start]) >= 3
        for client, kinds in found[start].items():
            assert {kind: n for kind, n in kinds.items() if n > most[kind]} == {}, client
    assert found[0] == found[1]
    assert digests[0] == digests[1]


# A server that asks what it likes --------------------

NAMES = ("ada", "bo", "cy")
STAGE = Stage.asking(PearsonSums, {"d": 2}, secure=True)


def clients(folder: Path, told: list[str] | None = None, **more: Any) -> list[masked.Client[Any]]:
    """Three clients that answer one question about a mean, at a start of the job."""
    secrets = [bytes([k + 1]) * 32 for k in range(3)]
    keys = [public_key(secret) for secret in secrets]
    made = []
    for k, secret in enumerate(secrets):
        counted = Questions(folder / NAMES[k], b"job", (told if told is not None else []).append)
        pairs = Pairs.agree(k, secret, NAMES, keys, b"job")
        machine = once.Client(lambda asked: PearsonSums(0, 0, 0.0, 0.0, 0.0, 0.0, 0.0))
        made.append(masked.Client(machine, Hider(pairs, NAMES[k], counted, spoils=counted.is_shut)))
    return made


def asked(client: masked.Client[Any], at: float) -> Any:
    assert STAGE.sums is not None
    return STAGE.sums.masked.client_receive(client, AskPearson(0, np.full(2, at)))[1][0]


def test_one_question_too_many_ends_the_job_over_all_starts_and_the_same_again_does_not(tmp_path: Path) -> None:
    for start in range(STARTS):
        for _ in range(2):
            for client in clients(tmp_path):
                asked(client, float(start))
    for client in clients(tmp_path):
        with pytest.raises(JobError, match=rf"pearson-sums-AskPearson was asked {STARTS} times, .*which asks 1 times"):
            asked(client, 7.0)
        asked(client, 0.0)  # what it has answered before
    for path in tmp_path.glob("*/questions/*/*"):
        path.unlink()
        path.parent.rmdir()
    asked(clients(tmp_path)[0], 7.0)  # the holder's word


def test_a_question_is_one_of_its_past(tmp_path: Path) -> None:
    """What a client answers depends on all that it was told: two questions in another order are others."""
    client = clients(tmp_path)[0]
    assert STAGE.sums is not None
    receive = STAGE.sums.masked.client_receive
    for at in (1.0, 2.0, 3.0):
        client, _ = receive(client, AskPearson(0, np.full(2, at)))
    with pytest.raises(JobError, match="was asked 3 times"):
        receive(client, AskPearson(0, np.full(2, 1.0)))


def total(answers: list[Any]) -> Any:
    assert STAGE.sums is not None
    return STAGE.sums._total(dict(enumerate(answers)), PearsonSums.hidden[0], 0)


def test_a_client_that_has_no_number_ends_all_at_the_next_barrier_and_is_not_named(tmp_path: Path) -> None:
    told: list[str] = []
    for start in range(MOST_ENDS):
        three = clients(tmp_path, told)
        three[1].hider.fail()
        three[1].hider.fail()  # counted once a start
        total([asked(client, 1.0) for client in three])  # of the exchange in which it happens there is a sum
        for client in three:
            client.hider.begin("the next")
        with pytest.raises(RemoteFault) as fault:
            total([asked(client, 1.0) for client in three])
        assert str(fault.value) == masked.ENDED
        assert not any(name in masked.ENDED for name in NAMES)
        assert len(told) == start + 1
    three = clients(tmp_path, told)
    assert "none of its sums can be read, until its holder has looked why and removes" in told[-1]
    with pytest.raises(RemoteFault, match=re.escape(masked.ENDED)):  # again without a question that tells which it is
        total([asked(client, 1.0) for client in three])
    for path in tmp_path.glob("bo/questions/*/ends"):
        path.unlink()
    total([asked(client, 1.0) for client in clients(tmp_path, told)])


@pytest.mark.parametrize("who", [(0,), (0, 2), (0, 1, 2)])
def test_no_sum_is_left_whoever_has_failed(who: tuple[int, ...], tmp_path: Path) -> None:
    three = clients(tmp_path)
    for k in who:
        three[k].hider.fail()
    for client in three:
        client.hider.begin("the next")
    with pytest.raises(RemoteFault, match="masks do not cancel"):
        total([asked(client, 1.0) for client in three])


@pytest.mark.parametrize("at", ["pvi-QUpdate", "arrival-AskSlope"])
def test_a_job_with_a_client_that_fails_publishes_nothing(at: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last barrier is after all that is asked, and before anything is published."""
    monkeypatch.chdir(tmp_path)
    path, asked = job(tmp_path, "pvi"), Hider.asked

    def failing(own: Hider, kind: str, question: bytes, most: int) -> None:
        asked(own, kind, question, most)
        if own.name == "b" and kind == at:
            own.fail()

    monkeypatch.setattr(Hider, "asked", failing)
    with pytest.raises(RemoteFault, match=re.escape(masked.ENDED)):
        fedkern.run(path, out=tmp_path / "out", **FAST | {"job": {"sums": "secure"}})
    assert not (tmp_path / "out" / "summary.json").exists()
    assert "its holder has looked why" in (tmp_path / "out" / "client-b" / "holder.txt").read_text()
    assert not (tmp_path / "out" / "client-a" / "holder.txt").exists()
