"""A holder's own site file: its path, its dialect, its policy, its threads; and what of it other parties read."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedkern
from fedkern.cli.__main__ import main
from fedkern.errors import JobError
from fedkern.printing import without_folders
from support import forked
from support.command import mpirun, mpirun_jobs
from support.refusal import refusal

NAMES = ("a", "b")
SECRET = "0815-4711"  # a cell
JOB = """
[job]
rounds = 2
[data]
clients = ["a.csv", "b.csv"]
response = "y"
"""


def table(seed: int) -> str:
    random = np.random.default_rng(seed)
    lines = [f"{random.normal(60, 9):.2f},{'uvw'[k % 3]},{int(random.random() < 0.5)}" for k in range(36)]
    return "\n".join(["x,ward,y", *lines]) + "\n"


def german(text: str) -> bytes:
    return text.replace(",", ";").replace(".", ",").encode("utf-16")


DIALECT = '[dialect]\ndelimiter = ";"\ndecimal = ","\nencoding = "utf-16"\n'


@pytest.fixture
def job(tmp_path: Path) -> Path:
    return job_in(tmp_path)


def job_in(place: Path) -> Path:
    """A job whose folder holds no data: each holder's lie elsewhere, the second's in another dialect."""
    folder, elsewhere = place / "job", place / "ward seven"
    (folder / "sites").mkdir(parents=True)
    elsewhere.mkdir()
    (folder / "job.toml").write_text(JOB)
    (elsewhere / "patients-a.csv").write_text(table(1))
    (elsewhere / "patients-b.csv").write_bytes(german(table(2)))
    (folder / "sites" / "a.toml").write_text(f'path = "{elsewhere}/patients-a.csv"\nthreads = 1\n')
    (folder / "sites" / "b.toml").write_text(f'path = "../../ward seven/patients-b.csv"\n{DIALECT}')
    return folder / "job.toml"


@pytest.fixture
def plain(tmp_path: Path) -> Any:
    """The same rows where the job file says."""
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "job.toml").write_text(JOB)
    for name, seed in (("a", 1), ("b", 2)):
        (tmp_path / "plain" / f"{name}.csv").write_text(table(seed))
    return fedkern.run(tmp_path / "plain" / "job.toml")


def test_each_client_reads_its_own(job: Path, plain: Any) -> None:
    """In one process: the same digest, of the job too."""
    found = fedkern.run(job, out=job.parent / "out")
    assert found.digest == plain.digest
    assert [*found.summary["clients"]] == [*NAMES]
    assert without_site(job.parent / "out", "patients", "ward seven") == []


def without_site(out: Path, *words: str) -> list[str]:
    """Files that others than the clients can read and that have one of the words."""
    files = [path for path in out.rglob("*") if path.is_file() and not any(p.startswith("client-") for p in path.parts)]
    assert files
    return [path.name for path in files if any(word.encode() in path.read_bytes() for word in words)]


def test_each_rank_reads_its_own(job: Path, plain: Any) -> None:
    ended = mpirun(3, "run", job, "--out", job.parent / "out")
    assert ended.code == 0, ended.err
    assert plain.digest in ended.out
    assert without_site(job.parent / "out", "patients", "ward seven") == []


SAID = {
    "missing path": "client 'b': b.toml: path: gone.csv is not there; correct path",
    "unknown key": "unknown key pathh; did you mean path?",
    "cell": "rows cannot be used (column no. 1 is not a number)",
    "no data": "client 'b': b.csv: no such file on this machine",
}


def with_fault(job: Path, fault: str) -> Path:
    site, data = job.parent / "sites" / "b.toml", job.parent.parent / "ward seven" / "patients-b.csv"
    if fault == "missing path":
        site.write_text(f'path = "{data.parent}/gone.csv"\n')
    elif fault == "unknown key":
        site.write_text(f'pathh = "{data}"\n')
    elif fault == "cell":
        lines = table(2).splitlines()
        lines[4] = SECRET + lines[4][lines[4].index(",") :]
        data.write_bytes(german("\n".join(lines)))
    else:
        site.unlink()
    return job


def test_what_other_ranks_read_of_a_fault_has_no_path_and_no_cell(tmp_path: Path) -> None:
    places = {fault: with_fault(job_in(tmp_path / fault.replace(" ", "-")), fault) for fault in SAID}
    runs: dict[str, list[str | Path]] = {
        fault: ["run", job, "--out", tmp_path / f"out-{k}"] for k, (fault, job) in enumerate(places.items())
    }
    codes, err = mpirun_jobs(3, tmp_path / "commands", runs)
    assert codes == dict.fromkeys(SAID, 2), err
    said = [line for line in err.splitlines() if "fedkern:" in line]
    assert len(said) == len(SAID), err
    for line, words in zip(said, SAID.values()):
        assert words in line
    for k in range(len(SAID)):
        err = err.replace(str(tmp_path / f"out-{k}"), "")
    assert str(tmp_path) not in err
    assert SECRET not in err


def test_the_holder_reads_all_of_it(job: Path, tmp_path: Path) -> None:
    """In its own folder, and by `check --local`, which knows the file's dialect."""
    data = job.parent.parent / "ward seven" / "patients-b.csv"
    ended = forked.fedkern("check", job, "--local", data, folder=tmp_path)
    assert (ended.code, ended.err) == (0, "")
    assert "36 rows, 0 with faults" in ended.out
    lines = table(2).splitlines()
    lines[4] = SECRET + lines[4][lines[4].index(",") :]
    data.write_bytes(german("\n".join(lines)))
    ended = forked.fedkern("check", job, "--local", data, folder=tmp_path)
    assert ended.code == 2
    assert f"line 5, column 'x': '{SECRET}' is not a number" in ended.out


def test_a_site_file_that_the_holder_names(job: Path, plain: Any, tmp_path: Path) -> None:
    """A folder, or a file; they go before what lies beside the job."""
    sites = job.parent / "sites"
    (tmp_path / "holder").mkdir()
    mine = sites.rename(tmp_path / "holder" / "mine")
    with refusal(JobError, "a.csv"):
        fedkern.run(job)
    ended = forked.fedkern("run", job, "--site", mine, "--out", tmp_path / "out", folder=tmp_path)
    assert ended.code == 0, ended.err
    assert plain.digest in ended.out
    one = tmp_path / "one.toml"
    one.write_text(f'client = "b"\npath = "ward seven/patients-b.csv"\n{DIALECT}')
    (job.parent / "a.csv").write_text(table(1))
    ended = forked.fedkern("run", job, "--site", one, "--out", tmp_path / "out2", folder=tmp_path)
    assert ended.code == 0, ended.err
    assert plain.digest in ended.out
    ended = forked.fedkern("check", job, "--site", tmp_path / "nowhere.toml", folder=tmp_path)
    assert ended.code == 2
    assert "nowhere.toml: --site (FEDKERN_SITE): no such file or folder; correct it" in ended.err


def test_one_file_for_all_clients(job: Path, plain: Any) -> None:
    """A dialect may be of all; a path is of one."""
    for name, seed in (("a", 1), ("b", 2)):
        (job.parent / "sites" / f"{name}.toml").unlink()
        (job.parent / f"{name}.csv").write_bytes(german(table(seed)))
    site = job.parent / "site.toml"
    site.write_text(DIALECT)
    assert fedkern.run(job).digest == plain.digest
    site.write_text(f'path = "a.csv"\n{DIALECT}')
    with refusal(JobError, "site.toml", "2"):
        fedkern.run(job)
    site.write_text(f'client = "c"\npath = "a.csv"\n{DIALECT}')
    with refusal(JobError, "site.toml", "c", "a"):
        fedkern.run(job)


def test_a_policy_that_the_site_file_names_binds(
    job: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(job.parent))
    policy = job.parent / "mine.toml"
    policy.write_text("[data.patients-a]\nepsilon = 1.0\ndelta = 1e-5\n")
    site = job.parent / "sites" / "a.toml"
    site.write_text(site.read_text() + 'policy = "../mine.toml"\n')
    with pytest.raises(JobError, match="client 'a': refused by the holder's policy"):
        fedkern.run(job)
    file = job.parent.parent / "ward seven" / "patients-a.csv"
    assert main(["check", str(job), "--local", str(file)]) == 2
    assert "as client 'a', is refused" in capsys.readouterr().out
    policy.write_text("open = true\n[data.patients-a]\n")
    assert fedkern.run(job).summary["rounds"] == 2
    assert main(["check", str(job), "--local", str(file)]) == 0
    assert "as client 'a', is allowed" in capsys.readouterr().out
    policy.write_text("open = true\n[data.other]\n")
    with pytest.raises(JobError, match="client 'a': refused by the holder's policy: a policy must name its data"):
        fedkern.run(job)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("path = 3", "path = 3: wanted a text in quotes"),
        ("threads = 0", "threads = 0: wanted a number of at least 1"),
        ("[dialects]\n", r"unknown section \[dialects\]; did you mean \[dialect\]\?"),
        ('[dialect]\ndelimiter = ";;"', 'dialect.delimiter = ";;": wanted one character'),
        ("path =", "a.toml: is no TOML"),
        ('policy = "/nowhere/policy.toml"', r"a.toml: policy: policy.toml is not there; correct policy$"),
    ],
)
def test_a_site_file_that_is_none(job: Path, content: str, said: str) -> None:
    (job.parent / "sites" / "a.toml").write_text(content)
    with pytest.raises(JobError, match=said) as fault:
        fedkern.run(job)
    assert str(fault.value).startswith("client 'a': a.toml: ")
    assert "\n" not in str(fault.value)
    assert str(job.parent) not in str(fault.value)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("client 'a': /data/ward/x.csv: no such file; correct it", "client 'a': x.csv: no such file; correct it"),
        ("cannot write '/home/me/out/a.json': full", "cannot write 'a.json': full"),
        ("1 / sd^2, and/or km/h, 3/4", "1 / sd^2, and/or km/h, 3/4"),
        ("no file matches 'sites/*.csv' in /srv/jobs/one; check", "no file matches 'sites/*.csv' in one; check"),
    ],
)
def test_folders_are_left_out_of_what_others_read(text: str, told: str) -> None:
    assert without_folders(text) == told


def test_the_table_of_a_policy_is_named_as_policies_read_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A packed file by its first name, one with a blank in quotes; and a file that is not there is no traceback."""
    rows = "x,y\n" + "".join(f"{i % 7},{i % 2}\n" for i in range(60))
    packed, blank = tmp_path / "ward.csv.gz", tmp_path / "ward b.csv"
    packed.write_bytes(gzip.compress(rows.encode()))
    blank.write_text(rows)
    job = tmp_path / "job.toml"
    job.write_text('[job]\nmethod = "likelihood"\n[data]\nclients = ["ward*"]\nresponse = "y"\n')
    for file, table in ((packed, "[data.ward] in policy.toml"), (blank, '[data."ward b"] in policy.toml')):
        main(["check", str(job), "--local", str(file)])
        assert table in capsys.readouterr().out
    assert main(["check", str(job), "--local", str(tmp_path / "nobody.csv")]) == 2
    assert "nobody.csv" in capsys.readouterr().err
