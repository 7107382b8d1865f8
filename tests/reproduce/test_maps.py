"""Published maps: the Australian areas, and the neighbours of US counties."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from fedkern.errors import JobError
from papers import au_sa2, county_homicide
from support.published import ROOT, needs


@needs("au-sa2-2011")
def test_australia_has_eight_clients_and_twelve_islands() -> None:
    found = au_sa2.read()
    assert found.graph.n == sum(found.sizes) == 2192
    assert dict(zip(found.clients, found.sizes))["New South Wales"] == 537
    assert len(found.graph.indices) == 2 * (5744 + 12)  # each island has one pair, none of them with each other
    assert found.graph.degrees.min() == 1
    assert sorted(np.bincount(found.graph.components()).tolist()) == [97, 2095]  # Tasmania apart
    assert (np.diff(found.client) >= 0).all()
    dropped = au_sa2.read(islands="drop")
    assert dropped.graph.n == 2180
    assert len(dropped.graph.indices) == 2 * 5744


@needs("au-sa2-2011")
def test_islands_are_linked_to_an_area_that_is_near() -> None:
    found, apart = au_sa2.read(), au_sa2.read(islands="independent")
    assert found.graph.names == apart.graph.names
    assert found.centroids is not None
    for k in apart.graph.islands:
        (near,) = found.graph.indices[found.graph.indptr[k] : found.graph.indptr[k + 1]]
        distance = np.sum((found.centroids - found.centroids[k]) ** 2, axis=1)
        distance[k] = np.inf
        assert distance[near] == distance.min()
        assert np.sqrt(distance.min()) < 15  # degrees; the Cocos Islands are far from everything


@needs("us-county-homicide")
def test_counties_have_neighbours_in_49_states() -> None:
    found, rows = county_homicide.read_map()
    data = county_homicide.read()
    assert found.graph.n == 3085
    assert len(found.graph.indices) == 2 * 9084
    assert found.graph.degrees.min() >= 1
    assert found.clients == data.groups
    np.testing.assert_array_equal(found.client, data.group[rows])
    assert sorted(rows.tolist()) == list(range(3085))
    assert min(found.sizes) == 1  # the District of Columbia


@needs("au-sa2-2011")
def test_altered_areas(tmp_path: Path) -> None:
    for name in ("areas.csv.gz", "edges.csv.gz"):
        (tmp_path / name).write_bytes((ROOT / "au-sa2-2011" / name).read_bytes())
    assert au_sa2.read(tmp_path).graph.n == 2192
    short = gzip.decompress((tmp_path / "edges.csv.gz").read_bytes()).decode().splitlines()[:-1]
    (tmp_path / "edges.csv").write_text("\n".join(short) + "\n")
    au_sa2._read.cache_clear()
    with pytest.raises(JobError, match="5743 rows, needs the 5744"):
        au_sa2.read(tmp_path)
    (tmp_path / "areas.csv").write_text("i\n0\n")
    with pytest.raises(JobError, match="1 rows; needs the 2192"):
        au_sa2.read(tmp_path, islands="drop")


def test_missing_areas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FEDKERN_DATA", raising=False)
    with pytest.raises(JobError, match="set FEDKERN_DATA to the folder that holds au-sa2-2011/"):
        au_sa2.read()
    with pytest.raises(JobError, match=r"neither areas.csv nor areas.csv.gz"):
        au_sa2.read(tmp_path)
