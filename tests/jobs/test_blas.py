"""The bits of a BLAS product depend on its threads: it has one in all that a job, a built prior or a trained one computes.

The tests' own processes begin with one thread (conftest.py), so that here it is raised to two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from fedkern.api import perform
from fedkern.data.simulate.federations import Settings, simulate
from fedkern.jobs.run import Output
from fedkern.methods import parse
from fedkern.methods.sigma.prior import build, train
from fedkern.transports.inprocess import InProcess
from support import built_priors


def threads() -> set[int]:
    """Of each BLAS that is loaded."""
    return {int(one["num_threads"]) for one in threadpool_info() if one["user_api"] == "blas"}


@pytest.fixture(autouse=True)
def two() -> Iterator[None]:
    with threadpool_limits(2, user_api="blas"):
        yield
        assert threads() == {2}


def looking(call: Callable[..., Any], seen: list[set[int]]) -> Callable[..., Any]:
    def looked(*arguments: Any, **more: Any) -> Any:
        seen.append(threads())
        return call(*arguments, **more)

    return looked


def test_a_job_has_one_thread() -> None:
    seen = list[set[int]]()

    class Place(InProcess):
        run_protocol = looking(InProcess.run_protocol, seen)

    job = {"job": {"rounds": 1}, "data": {"builtin": "breast-cancer", "split": {"clients": 2}}}
    perform(Place(), parse(job), Path.cwd(), Output(None, quiet=True))
    assert len(seen) > 2
    assert set.union(*seen) == {1}


def test_a_built_prior_has_one_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = list[set[int]]()
    for name in ("tie", "_write"):
        monkeypatch.setattr(build, name, looking(getattr(build, name), seen))
    built_priors.built(tmp_path)
    assert seen == [{1}, {1}]


def test_a_trained_prior_has_one_thread(fedkern, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = list[set[int]]()
    prior = simulate("sigma", tmp_path / "map", Settings(clients=2, rows=12, columns=1)).with_name("prior.toml")
    for name in ("gamma_of", "_train"):
        monkeypatch.setattr(train, name, looking(getattr(train, name), seen))
    sets = ("network.global_latents=3", "network.local_latents=2", "training.steps=20", "training.batch=8", "training.table=8")
    few = (*sets, "training.draws=50", "training.threads=1", "auxiliary.draws=100", "fit.draws=100")
    ended = fedkern("sigma", "train", prior, "--out", tmp_path / "out", "--quiet", *(w for s in few for w in ("--set", s)))
    assert ended.code == 0, ended.err
    assert seen == [{1}, {1}]
