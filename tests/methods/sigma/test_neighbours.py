"""What a prior's map was taken for: said in words, in a table and in a figure; a map that ties nobody is refused."""

from __future__ import annotations

import csv
import itertools
import json
from pathlib import Path
from typing import Any

import pytest

import fedkern
from fedkern.cli.__main__ import main
from fedkern.data.artifact import read_own
from fedkern.errors import JobError, OwnFault
from fedkern.jobs.run import Output
from fedkern.methods.sigma.prior import build
from fedkern.methods.sigma.prior.keys import parse
from support import built_priors
from support import sigma_artifacts as artifacts
from support.refusal import refusal

OWN = [pair for name, d in zip(artifacts.NAMES, artifacts.SIZES) for pair in itertools.pairwise(f"{name}-{i}" for i in range(d))]


def test_the_pairs_that_were_found_lie_beside_the_prior(tmp_path: Path) -> None:
    built = built_priors.written(tmp_path)
    with (tmp_path / "prior" / "neighbours.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    listed = set((tmp_path / "edges.csv").read_text().splitlines()[1:])
    assert {tuple(sorted((row["area"], row["neighbour"]))) for row in rows} == {tuple(sorted(line.split(","))) for line in listed}
    assert {row["client"] for row in rows} == set(artifacts.NAMES)
    across = sum(row["client"] != row["neighbour_client"] for row in rows)
    (note,) = [note for note in built.notes if "of two clients" in note]
    assert note.startswith(f"{across} of {len(rows)} pairs of neighbours are of two clients: ")
    assert (tmp_path / "prior" / "neighbours.png").read_bytes().startswith(b"\x89PNG")


def test_clients_that_share_no_pair_are_refused_and_the_remedy_works(tmp_path: Path, capsys: Any) -> None:
    built_priors.written(tmp_path)
    (tmp_path / "edges.csv").write_text("one,other\n" + "\n".join(map(",".join, OWN)) + "\n")
    tables = built_priors.tables()
    with pytest.raises(JobError, match=rf"none of the {len(OWN)} pairs of neighbours is of two clients.* data\.unlinked = true"):
        build.perform(parse(tables), tmp_path, Output(tmp_path / "apart", quiet=True))
    path = tmp_path / "prior.toml"
    path.write_text(
        "".join(f"[{name}]\n" + "".join(f"{k} = {json.dumps(v)}\n" for k, v in table.items()) for name, table in tables.items())
    )
    assert main(["sigma", "build", str(path), "--out", str(tmp_path / "a")]) == 2
    assert "nothing would tie them together" in capsys.readouterr().err
    assert main(["sigma", "build", str(path), "--out", str(tmp_path / "b"), "--set", "data.unlinked=true"]) == 0


@pytest.mark.parametrize("islands", ["drop", "independent"])
def test_an_island_that_was_dropped_is_named_as_one_where_a_row_has_it(tmp_path: Path, islands: str) -> None:
    built_priors.written(tmp_path)
    with (tmp_path / "areas.csv").open("a") as file:
        file.write("east-far,east,9,9\n")
    tables = built_priors.tables("bym2" if islands == "independent" else "car")
    tables["data"]["islands"] = islands
    build.perform(parse(tables), tmp_path, Output(tmp_path / "other", quiet=True))
    assert read_own(tmp_path / "other", "east").islands == (("east-far",) if islands == "drop" else ())
    assert read_own(tmp_path / "other", "north").islands == ()
    artifacts.counts(tmp_path / "rows", covariate=False)
    with (tmp_path / "rows" / "east.csv").open("a") as file:
        file.write("east-far,3,2.5\n")
    data = {"clients": [str(tmp_path / "rows" / "*.csv")], "area": "district", "response": "cases", "exposure": "expected"}
    job = {"job": {"method": "sigma", "rounds": 20}, "data": data, "model": {"prior": str(tmp_path / "other")}}
    if islands == "independent":  # the remedy
        assert fedkern.run(job).summary["sigma"]["areas"] == sum(artifacts.SIZES) + 1
        return
    with refusal(OwnFault, "district", "data.islands") as caught:
        fedkern.run(job)
    assert "'east-far'" in caught.value.own
    assert "east-far" not in str(caught.value)


def test_a_client_that_nothing_ties_is_named(tmp_path: Path) -> None:
    built_priors.written(tmp_path)
    first, second, third = artifacts.NAMES
    pairs = [*OWN, (f"{first}-0", f"{second}-0")]
    (tmp_path / "edges.csv").write_text("\n".join(map(",".join, pairs)) + "\n")  # no header: every line is a pair
    built = build.perform(parse(built_priors.tables()), tmp_path, Output(tmp_path / "tied", quiet=True))
    (note,) = [note for note in built.notes if "of two clients" in note]
    said = f"1 of {len(pairs)} pairs of neighbours are of two clients: {first} and {second} 1; none is of {third}, "
    assert note.startswith(said)


def job(tmp_path: Path, prior: Path) -> dict[str, Any]:
    artifacts.counts(tmp_path / "rows", covariate=False)
    data = {"clients": [str(tmp_path / "rows" / "*.csv")], "area": "district", "response": "cases", "exposure": "expected"}
    return {"job": {"method": "sigma", "rounds": 20}, "data": data, "model": {"prior": str(prior)}}


def test_a_list_that_is_no_map_is_a_doubt_of_every_result(tmp_path: Path) -> None:
    built_priors.written(tmp_path)
    areas = [line.partition(",")[0] for line in (tmp_path / "areas.csv").read_text().splitlines()[1:]]
    every = [f"{a},{b},{1 + k}" for k, (a, b) in enumerate(itertools.combinations(areas, 2))]
    (tmp_path / "edges.csv").write_text("\n".join(["one,other,km", *every]))
    built = build.perform(parse(built_priors.tables()), tmp_path, Output(tmp_path / "all", quiet=True))
    assert [note for note in built.notes if note.startswith("doubt: all 16 areas are neighbours of all others")]
    said = fedkern.run(job(tmp_path, tmp_path / "all")).summary
    assert said["converged"] is False
    assert said["verdict"].startswith("not converged: all 16 areas are neighbours of all others")
    assert [line for line in fedkern.check(job(tmp_path, tmp_path / "all")) if line.startswith("DOUBT    all 16 areas")]


def test_positions_are_said_where_they_are_read(tmp_path: Path) -> None:
    built_priors.written(tmp_path)
    with (tmp_path / "areas.csv").open(newline="") as file:
        names = [row["area"] for row in csv.DictReader(file)]
    near: dict[str, list[str]] = {name: [] for name in names}
    for line in (tmp_path / "edges.csv").read_text().splitlines()[1:]:
        a, b = line.split(",")
        near[a].append(b)
        near[b].append(a)
    lines = [" ".join(str(names.index(one) + 1) for one in (a, *near[a])).replace(" ", f" {len(near[a])} ", 1) for a in names]
    (tmp_path / "map.graph").write_text("\n".join([str(len(names)), *lines]))
    tables = built_priors.tables()
    tables["data"]["adjacency"] = "map.graph"
    built = build.perform(parse(tables), tmp_path, Output(tmp_path / "other", quiet=True))
    assert built.notes[0].startswith("neighbours are given by position: 1 is 'east-0', the first of the 16 areas in their table")
    with (tmp_path / "other" / "neighbours.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            assert (names[int(row["position"]) - 1], names[int(row["neighbour_position"]) - 1]) == (row["area"], row["neighbour"])
    said = "\n".join(fedkern.check(job(tmp_path, tmp_path / "other"), verbose=True))
    assert "map      its list of neighbours has positions" in said
    assert "positions" not in "\n".join(fedkern.check(job(tmp_path, tmp_path / "prior"), verbose=True))


def test_a_key_that_is_not_given_changes_no_prior() -> None:
    """Checkpoints of trainings, and ids of priors, are those of before it was there."""
    tables = built_priors.tables()
    assert parse(tables).identity == "aaa77cba0cb5cc937f0e75de8a94576a87a048b19b83e38f21043df9e4f3c7ab"
    tables["data"]["adjacency_ids"] = "names"
    assert parse(tables).identity != "aaa77cba0cb5cc937f0e75de8a94576a87a048b19b83e38f21043df9e4f3c7ab"


def test_a_client_whose_areas_all_touch_has_no_moran(tmp_path: Path) -> None:
    """Moran's I is the same whatever its areas are: it has no sd, and the job has its result."""
    built_priors.written(tmp_path)
    own = [f"{name}-{i}" for name, d in zip(artifacts.NAMES, artifacts.SIZES) for i in range(d)]
    pairs = {tuple(sorted(pair)) for pair in itertools.pairwise(own)}
    for name, d in zip(artifacts.NAMES, artifacts.SIZES):
        if name != "north":
            pairs |= {tuple(sorted(pair)) for pair in itertools.combinations([f"{name}-{i}" for i in range(d)], 2)}
    (tmp_path / "edges.csv").write_text("one,other\n" + "\n".join(sorted(map(",".join, pairs))) + "\n")
    build.perform(parse(built_priors.tables()), tmp_path, Output(tmp_path / "touching", quiet=True))
    said = fedkern.run(job(tmp_path, tmp_path / "touching"), out=tmp_path / "out").summary
    assert not [note for note in said["notes"] if "failed" in note]
    for name in artifacts.NAMES:
        text = (tmp_path / "out" / f"client-{name}" / "fit.json").read_text()
        assert ("moran" in json.loads(text)) == (name == "north")
        assert "nan" not in text.lower()
