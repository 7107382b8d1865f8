"""A line that cannot be read, in a spatial job whose counts have noise: it weighs nothing, and others get what they would get."""

from __future__ import annotations

import csv
import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fedkern
from fedkern.cli import report
from fedkern.cli.__main__ import main
from fedkern.errors import JobError
from fedkern.methods.sigma import own
from fedkern.privacy.noise import SecureSource
from fedkern.transports.codec import HEADER
from fedkern.transports.driver import ServerSide
from support import built_priors
from support import sigma_artifacts as artifacts

LINES: dict[str, Callable[[bytes], bytes]] = {  # of a district, a count, an exposure and a covariate
    "a comma of thousands": lambda line: line.replace(b",", b",1,", 1),
    "thousands in the exposure": lambda line: line.replace(b".", b",000.", 1),
    "a cell less": lambda line: line.rpartition(b",")[0],
    "the count lost": lambda line: b",".join([line.split(b",")[0], *line.split(b",")[2:]]),
    "a comma at the end": lambda line: line + b",",
    "a stray quote": lambda line: line.replace(b",", b',"', 1),
    "a zero byte": lambda line: line.replace(b",", b",\0", 1),
    "no UTF-8": lambda line: line.replace(b",", b",\xff", 1),
    "the name lost": lambda line: b'"' + line,
}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the holders' accounts lie; areas have few draws, which are not what is looked at."""
    monkeypatch.setenv("FEDKERN_CLIENT_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(own, "DRAWS", 20)
    return tmp_path / "home"


def job(folder: Path, **more: Any) -> dict[str, Any]:
    if not (folder / "prior").exists():
        built_priors.written(folder)
    artifacts.counts(folder / "rows")
    made: dict[str, Any] = {
        "job": {"method": "sigma", "rounds": 5, "seed": 3},
        "data": {"clients": [str(folder / "rows" / "*")], "area": "district", "response": "cases", "exposure": "expected"},
        "model": {"prior": str(folder / "prior")},
        "algorithm": {"inference": "sfvi"},
        "output": {"fit": True, "reweigh": False},
        "privacy": {"epsilon": 1.0},
    }
    return {**made, **more}


def spoil(folder: Path, change: Callable[[bytes], bytes], at: int = 3, client: str = "east") -> None:
    """Changes one line of a client's file (0 is the header)."""
    path = folder / "rows" / f"{client}.csv"
    lines = path.read_bytes().split(b"\n")
    lines[at] = change(lines[at])
    path.write_bytes(b"\n".join(lines))


def shapes(monkeypatch: pytest.MonkeyPatch, made: dict[str, Any], out: Path) -> list[tuple[Any, ...]]:
    """Kind, client and length of every frame, either way, in order."""
    seen: list[tuple[Any, ...]] = []
    ask, arrive = ServerSide._ask, ServerSide.arrive

    def asked(server: ServerSide, client: int, frame: bytes) -> Any:
        seen.append(("to", client, HEADER.unpack_from(frame)[2], len(frame)))
        return ask(server, client, frame)

    def arrived(server: ServerSide, frame: bytes, here: Any) -> None:
        seen.append(("from", *HEADER.unpack_from(frame)[2:4], len(frame)))
        arrive(server, frame, here)

    with monkeypatch.context() as patch:
        patch.setattr(ServerSide, "_ask", asked)
        patch.setattr(ServerSide, "arrive", arrived)
        fedkern.run(made, out=out)
    return seen


def told(out: Path, client: str = "east") -> Any:
    return json.loads((out / f"client-{client}" / "rows.json").read_text())


def areas(out: Path, client: str = "east") -> dict[str, dict[str, str]]:
    with (out / f"client-{client}" / "areas.csv").open(newline="") as file:
        return {row["area"]: row for row in csv.DictReader(file)}


def published(out: Path) -> list[str]:
    """What the others read in words, and of how many areas."""
    summary = json.loads((out / "summary.json").read_text())
    areas = str(summary["sigma"]["fit"]["areas"])
    return [*summary, areas, *(re.sub(r"\d+ (?=of \d+ areas)", "", note) for note in summary["notes"])]


@pytest.mark.usefixtures("undrawn")
def test_a_line_that_cannot_be_read_changes_nothing_that_others_see(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = job(tmp_path)
    want = shapes(monkeypatch, made, tmp_path / "whole")
    for n, (name, change) in enumerate(LINES.items()):
        out = tmp_path / str(n)
        artifacts.counts(tmp_path / "rows")
        spoil(tmp_path, change)
        made["privacy"] = {"epsilon": 1.0, "table": name}
        assert shapes(monkeypatch, made, out) == want, name
        assert published(out) == published(tmp_path / "whole"), name
        rows = told(out)
        assert (rows["faults"]["rows"], rows["faults"]["first"][0]["place"]) == (1, "line 4"), name
        (note,) = (text for text in rows["notes"] if "cannot be read" in text)
        assert "(line 4): areas 'east-2' stand in no other line" in note, name
        one = areas(out)["east-2"]
        assert (one["rows"], one["observed"]) == ("0", ""), name
        assert float(one["rate_mean"]) > 0
        assert sum(row["rows"] == "1" for row in areas(out).values()) == artifacts.SIZES[0] - 1
        assert "line 4" not in "".join(path.read_text() for path in (out / "client-west").glob("*.json"))
    pages = {name: report.write(out / f"client-{name}").read_text(encoding="utf-8") for name in ("east", "west")}
    assert all("Observed counts have noise" in page for page in pages.values())
    assert ["Nothing was read of 1 of these areas (east-2)" in page for page in pages.values()] == [True, False]
    assert "Nothing was read" not in report.write(out).read_text(encoding="utf-8")


def test_also_of_packed_files_and_where_no_line_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = job(tmp_path)
    want = shapes(monkeypatch, made, tmp_path / "whole")
    made["privacy"] = {"epsilon": 1.0, "table": "again"}
    for line in range(1, artifacts.SIZES[0] + 1):
        spoil(tmp_path, LINES["a comma at the end"], line)
    path = tmp_path / "rows" / "east.csv"
    (tmp_path / "rows" / "east.csv.gz").write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()
    assert shapes(monkeypatch, made, tmp_path / "out") == want
    assert {row["rows"] for row in areas(tmp_path / "out").values()} == {"0"}
    assert told(tmp_path / "out")["faults"]["rows"] == artifacts.SIZES[0]


def test_the_line_weighs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The result is the one of a file that says, in public, that the area has no exposure, bit for bit where the covariate is the
    same; so it is with the mended file, for the noisy table has no count of the area."""
    monkeypatch.setattr(SecureSource, "add_geometric", lambda source, total, decay: total)
    made = job(tmp_path)
    made["data"]["ignore"] = ["poverty"]
    spoil(tmp_path, lambda line: b",".join([line.split(b",")[0], b"0", b"0", b"1"]))
    want = fedkern.run(made).digest
    made["privacy"] = {"epsilon": 1.0, "table": "again"}
    artifacts.counts(tmp_path / "rows")
    spoil(tmp_path, LINES["a comma of thousands"])
    assert fedkern.run(made).digest == want
    artifacts.counts(tmp_path / "rows")
    mended = fedkern.run(made, out=tmp_path / "mended")
    assert mended.digest == want
    assert areas(tmp_path / "mended")["east-2"]["rows"] == "0"
    made["privacy"] = {"epsilon": 1.0, "table": "paid again"}
    assert fedkern.run(made).digest != want


def test_the_holder_reads_it_before_noise_is_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = job(tmp_path)
    spoil(tmp_path, LINES["a comma of thousands"])
    sections = (f"[{name}]\n" + "\n".join(f"{k} = {json.dumps(v)}" for k, v in table.items()) for name, table in made.items())
    (tmp_path / "job.toml").write_text("\n".join(sections).replace("true", "true"))
    assert main(["check", str(tmp_path / "job.toml"), "--local", str(tmp_path / "rows" / "east.csv")]) == 0
    said = capsys.readouterr().out
    assert "line 4: has 5 cells, the header 4" in said
    assert "areas 'east-2' stand in no other line" in said
    assert "take another privacy.table" in said
    assert not (tmp_path / "home" / "east").exists() or not [*(tmp_path / "home" / "east").glob("noisy-*")]


def test_in_an_open_job_it_stays_an_error(tmp_path: Path) -> None:
    made = job(tmp_path)
    del made["privacy"]
    spoil(tmp_path, LINES["a comma of thousands"])
    with pytest.raises(JobError, match="the row cannot be read"):
        fedkern.run(made)


def test_an_area_that_no_line_has_is_still_named(tmp_path: Path) -> None:
    made = job(tmp_path)
    path = tmp_path / "rows" / "east.csv"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    with pytest.raises(JobError, match="1 of its 5 areas in the prior stand in none"):
        fedkern.run(made)
