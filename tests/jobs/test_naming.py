"""Clients' names: none may lead out of a folder, share a file with another, or with a rank."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedkern.jobs.naming import faults

BAD = {
    "../b": "it is a path",
    "a/../../b": "it is a path",
    "/etc/b": "it is a path",
    "a\\b": "it is a path",
    "..": "begins with .",
    ".hidden": "begins with .",
    "-n": "begins with . or -",
    "a.": "ends with .",
    "": "it is empty",
    " a": "begins or ends with a space",
    "a\n": "begins or ends with a space",
    "a\nb": "not printed",
    "a\x1b[2Jb": "not printed",
    "a\0b": "not printed",
    "a\u202eb": "not printed",
    "a\u200bb": "not printed",
    "a\udc80": "not printed",
    "x" * 101: "more than 100 bytes",
    "ü" * 51: "more than 100 bytes",
    "rank-1": "files of ranks",
    "Rank-12": "files of ranks",
    "Server": "files of ranks and of the server",
    "federation": "files of ranks and of the server",
}
GOOD = ("a", "ward a", "Côte d'Ivoire", "client-01", "New York (NY)", "rank", "rank-1a", "2020.v2", "Ωmega", "x" * 100)
HEAD = {
    "pvi": 'response = "y"',
    "sparse": 'response = "y"',
    "vertical": 'id = "id"\nresponse = "y"',
    "sigma": 'area = "area"\nresponse = "y"',
}
MODEL = {"sigma": '[model]\nprior = "prior"\n'}


@pytest.mark.parametrize("name", BAD)
def test_names_that_no_client_can_have(name: str) -> None:
    (fault,) = faults([name, "b1"], "data.names")
    assert BAD[name] in fault
    assert fault.startswith(f"data.names: {name!r} cannot be the name of a client")
    assert fault.isprintable()


def test_names_that_clients_have() -> None:
    assert list(faults(GOOD, "data.names")) == []


@pytest.mark.parametrize(("one", "two"), [("a", "A"), ("strasse", "straße"), ("é", "e\u0301"), ("a b", "a_b"), ("ﬁ", "fi")])
def test_names_that_a_disk_could_take_for_each_other(one: str, two: str) -> None:
    (fault,) = faults([one, two], "data.names")
    assert "would share a file on some disks" in fault


@pytest.mark.parametrize("method", HEAD)
@pytest.mark.parametrize("names", ['["../../escaped", "b"]', '["a", "rank-1"]', '["a", "A"]'])
def test_every_method_refuses_them_before_it_opens_anything(fedkern: Any, job: Any, method: str, names: str) -> None:
    text = f'[job]\nmethod = "{method}"\n[data]\nclients = ["a.csv", "b.csv"]\nnames = {names}\n{HEAD[method]}\n'
    path = job(text + MODEL.get(method, ""))

    def there() -> list[Path]:
        return sorted([*path.parent.parent.iterdir(), *path.parent.rglob("*")])

    before = there()
    for command in (["check", path], ["run", path, "--out", "out"]):
        ended = fedkern(*command)
        assert (ended.code, "data.names: " in ended.err) == (2, True), ended.err
    assert there() == before


@pytest.mark.parametrize("method", HEAD)
def test_the_names_of_files_are_names_too(fedkern: Any, job: Any, method: str, tmp_path: Path) -> None:
    text = f'[job]\nmethod = "{method}"\n[data]\nclients = ["data/*.csv"]\n{HEAD[method]}\n'
    path = job(text + MODEL.get(method, ""))
    (tmp_path / "data").mkdir()
    for name in ("a", "rank-2"):
        (tmp_path / "data" / f"{name}.csv").write_text("id,area,x,y\n1,1,1,1\n")
    ended = fedkern("run", path, "--out", "out")
    assert ended.code == 2
    assert "data.clients: 'rank-2' cannot be the name of a client" in ended.err
    assert "or give data.names" in ended.err
