"""Messages whose advice is followed to its end: each names what is the matter, and a job that does what it says runs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedkern as package
from fedkern.errors import JobError
from support.command import mpirun_jobs
from support.found import clients, ids

NAMES, ROWS = ("ada", "bo", "cy"), 160
Files = dict[str, dict[str, Any]]


def patients(seed: int = 0, events: float = 0.4, names: tuple[str, ...] = NAMES) -> Files:
    """Files of three hospitals: age, dose, an event and its time."""
    random, out = np.random.default_rng(seed), {}
    for name in names:
        age, dose = np.round(random.normal(60, 9, ROWS), 2), np.round(random.gamma(4, 2, ROWS), 3)
        died = (random.random(ROWS) < events).astype(int)
        out[name] = {"age": age, "dose": dose, "months": np.round(random.exponential(20, ROWS) + 0.01, 3), "died": died}
    return out


class Hospitals:
    """A job of the method `likelihood` at the strict level, and its files, which are written anew before each run."""

    def __init__(self, root: Path, fedkern: Any, files: Files, data: str = "", model: str = "", job: str = "") -> None:
        self.root, self.fedkern, self.files = root, fedkern, files
        self.data, self.model, self.job = data or 'response = "died"\nignore = ["months"]', model, job
        self.asks = 'level = "strict"'

    def write(self) -> Path:
        for name, columns in self.files.items():
            lines = [",".join(columns), *(",".join(map(str, row)) for row in zip(*columns.values()))]
            (self.root / f"{name}.csv").write_text("\n".join(lines) + "\n")
        clients = ", ".join(f'"{name}.csv"' for name in self.files)
        path = self.root / "job.toml"
        head = f'[job]\nmethod = "likelihood"\n{self.job}\n[data]\nclients = [{clients}]\n{self.data}\n[model]\n{self.model}\n'
        path.write_text(f"{head}\n[disclosure]\n{self.asks}\n")
        return path

    def run(self) -> tuple[Any, Path]:
        """Returns how a run ended, and its folder."""
        out = self.root / f"out-{len([*self.root.glob('out-*')])}"
        return self.fedkern("run", self.write(), "--out", out, "--quiet"), out

    def refused(self, *words: str) -> str:
        """Sees that a run is refused, in these words, and returns what bo reads in its own folder."""
        return (self.fails(*words) / "client-bo" / "holder.txt").read_text()

    def fails(self, *words: str) -> Path:
        """Sees that a run is refused, in these words, and returns its folder."""
        ended, out = self.run()
        assert ended.code == 2
        for one in words:
            assert one in ended.err
        return out

    def summary(self) -> dict[str, Any]:
        """Sees that a run ends well, and returns its summary."""
        ended, out = self.run()
        assert ended.code == 0, ended.err
        return dict(json.loads((out / "summary.json").read_text()))


def test_a_column_of_another_name_at_one_client(fedkern: Any, tmp_path: Path) -> None:
    hospitals = Hospitals(tmp_path, fedkern, patients())
    bo = hospitals.files["bo"]
    hospitals.files["bo"] = {"dose": bo["dose"], "AGE": bo["age"], "months": bo["months"], "died": bo["died"]}
    own = hospitals.refused(
        "client 'bo': covariate no. 1 of client 'ada' is missing, while its own covariate no. 2 is not at client 'ada': where "
        "these are one column, give it one name in all files (capitals count)",
        "holder.txt in its own folder has all of it",
    )
    assert own.rstrip().endswith("its covariates that client 'ada' lacks: 'AGE' (covariate no. 2)")
    ended, _ = hospitals.run()
    assert "AGE" not in ended.err, "a file without a header has a row in its place, so others read no name"
    hospitals.files["bo"] = {name.lower(): values for name, values in hospitals.files["bo"].items()}
    assert hospitals.summary()["digest"] == Hospitals(tmp_path, fedkern, patients()).summary()["digest"]
    del hospitals.files["bo"]["age"]
    assert hospitals.refused("covariate no. 1 of client 'ada' is missing; add it, or ignore it").rstrip().endswith("lacks: none")


def test_a_server_writes_nothing_into_the_folder_of_a_client_that_lives_elsewhere(fedkern: Any, tmp_path: Path) -> None:
    hospitals = Hospitals(tmp_path, fedkern, patients())
    hospitals.files["bo"] = {("AGE" if name == "age" else name): values for name, values in hospitals.files["bo"].items()}
    out = tmp_path / "out"
    codes, err = mpirun_jobs(4, tmp_path / "commands", {"all": ["run", hospitals.write(), "--out", out, "--quiet"]})
    assert codes == {"all": 2}, err
    assert "covariate no. 1 of client 'ada' is missing, while its own covariate no. 1 is not at client 'ada'" in err
    assert "holder.txt" not in err
    assert not (out / "client-bo" / "holder.txt").exists()


def test_a_slip_of_typing_is_a_cell_far_from_all_others_and_no_rare_value(fedkern: Any, tmp_path: Path) -> None:
    hospitals = Hospitals(tmp_path, fedkern, patients())
    right = hospitals.files["bo"]["age"][7]
    hospitals.files["bo"]["age"][7] = 100 * right
    own = hospitals.refused("client 'bo': refused by disclosure.rows_per_value")
    assert f"cells of 'age' so far from all others that what is sent tells their row (line 9: {100 * right:.6g}): mend" in own
    assert "join values" not in own
    hospitals.files["bo"]["age"][7] = right
    assert hospitals.summary()["converged"]
    # A number that a few rows have and all others lack is a rare value as before, and so are two far cells.
    hospitals.files["bo"]["dose"] = np.where(np.arange(ROWS) < 1, 1.0, 0.0)
    assert "rows that values of 'dose' have to themselves: 1;" in hospitals.refused(
        "client 'bo': refused by disclosure.rows_per_value"
    )


def test_labels_that_one_file_alone_has(fedkern: Any, tmp_path: Path) -> None:
    """The label that counts as 1 is a remedy only where all files have it; else the file that differs is rewritten."""
    hospitals = Hospitals(tmp_path, fedkern, patients())
    numbers = hospitals.files["bo"]["died"]
    hospitals.files["bo"]["died"] = np.where(numbers, "yes", "no")
    hospitals.fails(
        "client 'bo': 'died' has labels, and 0 and 1 at client 'ada'; write the same two labels, or 0 and 1, in all files"
    )
    hospitals.data += '\npositive = "yes"'
    ended, _ = hospitals.run()
    assert ended.code == 2
    assert "client 'ada', ada.csv: column 'died' has other labels than a response may have" in ended.err
    assert "a response has the same two labels in all files" in ended.err
    for name in ("ada", "cy"):  # the one way
        hospitals.files[name]["died"] = np.where(hospitals.files[name]["died"], "yes", "no")
    means = {name: row["mean"] for name, row in hospitals.summary()["parameters"].items()}
    hospitals = Hospitals(tmp_path, fedkern, patients())  # and the other, with the same rows
    assert {name: row["mean"] for name, row in hospitals.summary()["parameters"].items()} == pytest.approx(means)


def test_events_that_one_file_codes_otherwise(fedkern: Any, tmp_path: Path) -> None:
    """Where 1 and 2 stand for 0 and 1 in one file, a label for all makes events of its rows without: that is looked at first."""
    timed = 'time = "months"\nevent = "died"'
    hospitals = Hospitals(tmp_path, fedkern, patients(events=0.6), timed, 'family = "cox"')
    hospitals.files["bo"]["died"] = hospitals.files["bo"]["died"] + 1
    hospitals.fails("client 'ada', ada.csv: rows cannot be used (column 'died' is not a label)")
    hospitals.data += '\npositive = "1"'
    hospitals.fails("client 'bo': 'died' has a label too many", "the same two labels in all files", "of the file that differs")
    # Where few rows have the label, that ends the job before labels leave: nobody else knows yet which labels bo has.
    few = patients(events=0.9)
    hospitals.files = {**few, "bo": {**few["bo"], "died": few["bo"]["died"] + 1}}
    first = "see first that label '1' is the event in this file as in all others, else write it so; take fewer columns"
    assert first in hospitals.refused("client 'bo': refused by disclosure.rows_per_coefficient")
    hospitals.files["bo"]["died"] = hospitals.files["bo"]["died"] - 1
    assert hospitals.summary()["converged"]
    hospitals.data = timed
    assert hospitals.summary()["converged"]


def test_a_client_that_is_refused_runs_at_the_numbers_that_its_refusal_names(fedkern: Any, tmp_path: Path) -> None:
    files = patients(events=0.0)
    for columns in files.values():
        columns["died"][:2] = 1
    hospitals = Hospitals(tmp_path, fedkern, files)
    own = (hospitals.fails("client 'ada': refused by disclosure.") / "client-ada" / "holder.txt").read_text()
    named = re.findall(r"where all holders agree that such rows may be known to the server, lower disclosure.(\w+) to (\S+)", own)
    assert "rows_per_value" in dict(named)
    hospitals.asks += "".join(f"\n{key} = {number}" for key, number in named)
    lowered = 'this job asks for less than level "standard" (disclosure.rows_per_value'
    assert hospitals.fedkern("check", hospitals.write()).out.startswith(f"LOWERED  {lowered}")
    loud = hospitals.fedkern("run", hospitals.write(), "--out", tmp_path / "loud")
    assert loud.err.startswith(f"fedkern: {lowered}")
    summary = json.loads((tmp_path / "loud" / "summary.json").read_text())
    assert summary["notes"][0].startswith(lowered)
    assert "few-events" in ids(summary)


def test_clients_without_an_event_are_named_where_the_server_knows_them(fedkern: Any, tmp_path: Path) -> None:
    hospitals = Hospitals(tmp_path, fedkern, patients())
    hospitals.files["cy"]["died"] = np.zeros(ROWS, int)
    hospitals.files["bo"]["died"] = np.ones(ROWS, int)
    named = hospitals.summary()
    assert clients(named, "no-event-at") == [["cy", 160]]
    assert clients(named, "only-events-at") == [["bo", 160]]
    hospitals.job = 'sums = "secure"'
    assert not [note for note in hospitals.summary()["notes"] if "no event" in note or "in every row" in note]
    usual = Hospitals(tmp_path, fedkern, patients()).summary()["notes"]
    assert not [note for note in usual if "event" in note]


def test_two_models_of_the_same_rows_are_compared_as_the_page_says(fedkern: Any, tmp_path: Path) -> None:
    hospitals = Hospitals(tmp_path, fedkern, patients(), model="[output]\nloo = true")
    _, one = hospitals.run()
    hospitals.data = hospitals.data.replace('"months"', '"months", "dose"')
    _, two = hospitals.run()
    first, second = package.load(one), package.load(two)
    compared = first.compare(second)
    assert set(compared) == {"log_bayes_factor", "error", "elpd_difference", "elpd_error"}
    exact = first.summary["loo"]["elpd"] - second.summary["loo"]["elpd"]
    assert abs(compared["elpd_difference"] - exact) <= 0.05 * compared["elpd_error"] + 1e-12
    assert len(f"{compared['elpd_difference']:g}") <= 7, "no more digits than its error allows"
    assert compared["log_bayes_factor"] == pytest.approx(-second.compare(first)["log_bayes_factor"])
    hospitals.files["bo"]["died"] = 1 - hospitals.files["bo"]["died"]
    _, other = hospitals.run()
    with pytest.raises(JobError, match="compare"):
        first.compare(package.load(other))
