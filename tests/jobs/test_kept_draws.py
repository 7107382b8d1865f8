"""Kept draws are appended to a file, of which a checkpoint holds the length and the digest."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedkern.algorithms.core.messages import SERVER
from fedkern.algorithms.core.trace import Trace
from fedkern.errors import JobError, LostPeer
from fedkern.jobs.draws import Draws, Reference
from fedkern.jobs.files import RunFolder
from fedkern.transports.codec import unpack
from support.interrupted import Crash, job, run
from support.refusal import refusal


def row(i: int) -> dict[str, Any]:
    return {"theta": np.full((2, 3), float(i)), "lp": np.array([i, -i], float)}


def filled(trace: Trace, first: int, last: int) -> Trace:
    for i in range(first, last):
        trace.add(row(i))
    return trace


def same(a: Trace, b: Trace) -> None:
    assert (a.count, set(a.names())) == (b.count, set(b.names()))
    for name in a.names():
        np.testing.assert_array_equal(a[name], b[name])


def test_a_checkpoint_holds_no_draws_and_each_is_written_once(tmp_path: Path) -> None:
    trace, draws, sizes = Trace(), Draws(tmp_path, "gibbs"), []
    for number in range(1, 6):
        filled(trace, 100 * (number - 1), 100 * number)
        rest, reference = draws.appended(number, {"round": number, **trace.save()})
        assert rest == {"round": number}
        assert reference is not None
        assert reference.number == 1
        sizes.append(reference.length)
        assert (tmp_path / "gibbs-000001.draws").stat().st_size == reference.length
        again = Draws(tmp_path, "gibbs")
        same(Trace.load(again.restored(number, Reference.read(reference.pack()))), trace)
    assert len(set(np.diff(sizes))) == 1  # as many bytes for as many draws
    assert (tmp_path / "gibbs-000001.draws").stat().st_mode & 0o077 == 0


def test_what_no_checkpoint_knows_is_cut_off(tmp_path: Path) -> None:
    draws, trace = Draws(tmp_path, "hmc"), filled(Trace(), 0, 10)
    _, first = draws.appended(1, trace.save())
    _, second = draws.appended(2, filled(trace, 10, 20).save())  # whose checkpoint was not written
    assert first is not None
    assert second is not None
    again = Draws(tmp_path, "hmc")
    going = Trace.load(again.restored(1, first))
    assert going.count == 10
    _, other = again.appended(2, filled(going, 50, 55).save())
    assert other is not None
    assert (tmp_path / "hmc-000001.draws").stat().st_size == other.length
    same(Trace.load(Draws(tmp_path, "hmc").restored(2, other)), going)
    with refusal(ValueError, "hmc-000001.draws"):
        again.check(second)
    again.check(first)


def test_draws_that_are_forgotten_begin_a_new_file(tmp_path: Path) -> None:
    draws, trace = Draws(tmp_path, "gibbs"), filled(Trace(), 0, 5)
    draws.appended(1, trace.save())
    trace.clear()
    assert draws.appended(2, {"round": 2, **trace.save()}) == ({"round": 2}, None)
    _, reference = draws.appended(3, filled(trace, 0, 9).save())  # more than before
    assert reference is not None
    assert reference.number == 3
    _, other = draws.appended(4, filled(trace, 9, 11).save())
    draws.clean([1, 3])
    assert {path.name for path in tmp_path.iterdir()} == {"gibbs-000001.draws", "gibbs-000003.draws"}
    draws.clean([3, 4])
    assert {path.name for path in tmp_path.iterdir()} == {"gibbs-000003.draws"}
    (tmp_path / "gibbs-sensitivity-000001.draws").write_bytes(b"")
    draws.clean([4])
    assert len(list(tmp_path.iterdir())) == 2  # of another protocol
    assert other is not None
    same(Trace.load(Draws(tmp_path, "gibbs").restored(4, other)), trace)


@pytest.mark.parametrize("damage", [lambda b: b[:-1], lambda b: b[:20] + b"x" + b[21:], None], ids=["cut", "altered", "gone"])
def test_draws_that_are_not_there_are_no_checkpoint(tmp_path: Path, damage: Callable[[bytes], bytes] | None) -> None:
    draws = Draws(tmp_path, "gibbs")
    _, reference = draws.appended(1, filled(Trace(), 0, 5).save())
    (path,) = tmp_path.iterdir()
    path.unlink() if damage is None else path.write_bytes(damage(path.read_bytes()))
    assert reference is not None
    with pytest.raises(ValueError, match="cannot be read" if damage is None else "was cut short or altered"):
        draws.check(reference)


@pytest.mark.parametrize("kind", ["sparse", "hmc"])
def test_a_sampled_job_goes_on_from_what_it_appended(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bit for bit; and no checkpoint has the draws."""
    path = job(tmp_path, kind)
    whole = run(path, tmp_path / "whole")
    every = "algorithm.checkpoint_every=1e-9"
    contents: list[dict[str, Any]] = []
    keep = RunFolder.keep

    def seen(folder: Any, party: int, protocol: str, number: int, content: Any, *rest: Any, **more: Any) -> None:
        contents.append({"party": party, "protocol": protocol, **content})
        keep(folder, party, protocol, number, content, *rest, **more)

    monkeypatch.setattr(RunFolder, "keep", seen)
    with pytest.raises(Crash):
        run(path, tmp_path / "out", every, crash=100 if kind == "sparse" else 60)
    again = run(path, tmp_path / "out", every, resume=True)
    assert again.summary["digest"] == whole.summary["digest"]
    sampled = [one for one in contents if "draws" in one]
    assert {one["party"] == SERVER for one in sampled} == {True, False}
    for one in sampled:
        assert not [name for name in unpack(one["state"]) if name.startswith("trace.")]
    sizes = [len(one["state"]) for one in sampled if one["party"] == SERVER]
    assert max(sizes) - min(sizes) < 200  # texts of numbers
    lengths = [Reference.read(one["draws"]).length for one in sampled if one["party"] == SERVER]
    assert max(lengths) > 4 * min(lengths)


def test_the_draws_of_a_checkpoint_are_tested_before_it_is_chosen(tmp_path: Path) -> None:
    path, out = job(tmp_path, "sparse"), tmp_path / "out"
    whole = run(path, tmp_path / "whole")
    with pytest.raises(LostPeer, match="--resume goes on"):
        run(path, out, "algorithm.checkpoint_every=1e-9", stop=150)
    (file,) = (out / "checkpoint").glob("*.draws")
    content = file.read_bytes()
    file.write_bytes(content[:10])
    with pytest.raises(JobError, match=r"draws was cut short or altered.*none can be read"):
        run(path, out, resume=True)
    file.write_bytes(content[:-1])  # the older checkpoint is whole
    again = run(path, out, resume=True)
    assert again.summary["digest"] == whole.summary["digest"]
    assert [note for note in again.summary["notes"] if "draws was cut short or altered; an older checkpoint is used" in note]
