"""Places and methods of other packages: they need public names alone, and no holder imports what it did not allow."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

import fedkern
from fedkern.errors import JobError
from fedkern.places import InProcess
from fedkern.testing.places import DATA, JOBS, check_place
from support import forked
from support.outside import queues, threads
from support.refusal import refusal

PUBLIC = {"fedkern.places", "fedkern.errors"}


@pytest.mark.parametrize("module", [threads, queues])
def test_outsiders_need_public_names_alone(module):
    tree = ast.parse(Path(module.__file__).read_text())
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    named = {node.module if isinstance(node, ast.ImportFrom) else node.names[0].name for node in imports}
    assert {name for name in named if name.startswith("fedkern")} <= PUBLIC
    names = {(node.module, alias.name) for node in imports if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert {name for at, name in names if at == "fedkern.places"} <= set(fedkern.places.__all__)
    # Nor a private attribute of an object of fedkern's: those with an underscore are its own.
    own = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)} | {"_place"}
    assert {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr.startswith("_")} <= own | {
        "__setattr__"
    }


@pytest.mark.parametrize("over", [threads.over, queues.over])
def test_an_outsiders_place_runs_jobs_as_one_process_does(over):
    with threadpool_limits(1, user_api="blas"):  # threads of one process share it
        check_place(over)


def wrong(**methods):
    """A place of queues with other methods."""
    kind = type("Wrong", (queues.Queued,), methods)
    return lambda main, names: queues.over(main, names, kind)


def twice(self, rank, what, content):
    self.boxes[rank].put((self.rank, what, content))
    if what == "frame" and content is not None:
        self.boxes[rank].put((self.rank, what, content))


def names_of_all(self, numbers, names):
    """The clients that are left get new numbers, and the place keeps the old ones."""
    self.names = names
    self.idle = set(range(1, self.size)) - {self.homes[k] for k in numbers}


@pytest.mark.parametrize(
    ("over", "says"),
    [
        (wrong(post=twice), "exit codes"),
        (wrong(mine=lambda self, n: [0] if self.rank == 1 else []), "exit codes"),
        (wrong(choose=lambda self, offers, rule: rule(offers)), "exit codes"),
        (wrong(agree=lambda self, configuration: None), "another configuration"),
        (wrong(leave_out=names_of_all), "exit codes"),
    ],
    ids=["doubles", "homes", "choose", "agree", "leave_out"],
)
def test_the_check_sees_each_promise_that_is_broken(over, says, monkeypatch):
    monkeypatch.setattr(queues, "PATIENCE", 2.0)
    with threadpool_limits(1, user_api="blas"), pytest.raises(AssertionError, match=says):
        check_place(over)


def test_the_check_finds_places_that_are_wrong():
    def other_bits(main, names):
        class Other(InProcess):
            def settle(self, told, rule):
                return rule([told, told])

        return [main(Other())]

    with pytest.raises(AssertionError, match="settle gave"):
        check_place(other_bits)
    with pytest.raises(AssertionError, match="exit codes"):
        check_place(lambda main, names: [main(InProcess()), 1])


def test_a_place_is_given_by_the_caller():
    want = fedkern.run(JOBS[0], data=DATA)
    assert fedkern.run(JOBS[0], data=DATA, place=InProcess()).digest == want.digest
    with pytest.raises(JobError, match=r"place = 'nowhere': no installed package brings it"):
        fedkern.run(JOBS[0], data=DATA, place="nowhere")
    with refusal(JobError, "job.place"):
        fedkern.run({**JOBS[0], "job": {"method": "likelihood", "place": "mine"}}, data=DATA)


PACKAGE = """
from pathlib import Path
Path({trace!r}).write_text("imported")
from typing import Literal
from fedkern.methods import load_method
from fedkern.places import InProcess
like = load_method("likelihood")


class Mine(InProcess):
    pass


METHOD = like
NOTHING = 3
place = Mine
"""


@pytest.fixture
def outsider(tmp_path):
    """A package on the path with entry points; the file that its import writes."""
    site, trace = tmp_path / "site", tmp_path / "trace"
    (site / "outsider-1.0.dist-info").mkdir(parents=True)
    (site / "outsider-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: outsider\nVersion: 1.0\n")
    entries = "[fedkern.methods]\nmine = outsider:METHOD\nnothing = outsider:NOTHING\nlost = outsider:LOST\n"
    entries += "[fedkern.places]\nmine = outsider:place\n"
    (site / "outsider-1.0.dist-info" / "entry_points.txt").write_text(entries)
    (site / "outsider.py").write_text(PACKAGE.format(trace=str(trace)))
    return site, trace


def command(site, folder, *words, **more):
    """Exit code and all words of a command of a user who has installed the outsider."""
    done = forked.fedkern(*words, folder=folder, first=site, environment={"HOME": str(folder), **more})
    return done.code, done.out + done.err


def write_job(folder, method="mine"):
    """A job of two clients with their files."""
    (folder / "rows").mkdir()
    generator = np.random.default_rng(1)
    for name in ("ada", "bo"):
        rows = [f"{x:.3f},{1 + 2 * x:.3f}" for x in generator.normal(size=40)]
        (folder / "rows" / f"{name}.csv").write_text("\n".join(["x,y", *rows]) + "\n")
    text = f'[job]\nmethod = "{method}"\n[data]\nclients = ["rows/*.csv"]\nresponse = "y"\n[model]\nfamily = "gaussian"\n'
    (folder / "job.toml").write_text(text)
    return folder / "job.toml"


def test_a_method_of_another_package_runs_where_no_policy_is(outsider, tmp_path):
    site, trace = outsider
    job = write_job(tmp_path)
    code, said = command(site, tmp_path, "check", str(job))
    assert code == 0, said
    assert trace.exists()
    code, said = command(site, tmp_path, "check", str(job), "--set", "job.method=else")
    assert code == 2
    assert 'job.method = "else": wanted' in said
    assert "mine" in said


@pytest.mark.parametrize(
    ("where", "allowed"),
    [
        ("beside", False),
        ("home", True),
        *(
            pytest.param(*case, marks=pytest.mark.nightly)
            for case in (("home", False), ("beside", True), ("root", False), ("root", True))
        ),
    ],
)
def test_a_policy_is_asked_before_the_package_is_imported(outsider, tmp_path, where, allowed):
    site, trace = outsider
    job = write_job(tmp_path)
    paths = ", ".join(f'"{tmp_path / "rows" / name}.csv"' for name in ("ada", "bo"))
    text = 'open = true\nmethods = ["mine"]\n' if allowed else "open = true\n"
    text += f"[data.rows]\npaths = [{paths}]\n"
    more = {}
    if where == "home":
        (tmp_path / ".fedkern").mkdir()
        (tmp_path / ".fedkern" / "policy.toml").write_text(text)
    elif where == "beside":
        (tmp_path / "rows" / "fedkern-policy.toml").write_text(text)
    else:
        (tmp_path / "clients").mkdir()
        (tmp_path / "clients" / "policy.toml").write_text(text)
        more["FEDKERN_CLIENT_HOME"] = str(tmp_path / "clients")
    code, said = command(site, tmp_path, "check", str(job), **more)
    assert (code, trace.exists()) == ((0, True) if allowed else (2, False)), said
    if not allowed:
        assert 'job.method = "mine" has the holder run a method of another package' in said
    # Its own methods need no word in a policy.
    code, said = command(site, tmp_path, "check", str(job), "--set", "job.method=likelihood", **more)
    assert code == 0, said


def test_a_policy_without_data_allows_no_package_and_one_for_other_data_not_these(outsider, tmp_path):
    site, trace = outsider
    job = write_job(tmp_path)
    policy = tmp_path / "rows" / "fedkern-policy.toml"
    policy.write_text("require = true\n")
    code, said = command(site, tmp_path, "check", str(job))
    assert (code, trace.exists()) == (2, False), said
    paths = ", ".join(f'"{tmp_path / "rows" / name}.csv"' for name in ("ada", "bo"))
    other = '[data.other]\npaths = ["other.csv"]\nmethods = ["mine"]\n'
    policy.write_text(f"open = true\n[data.rows]\npaths = [{paths}]\n{other}")
    code, said = command(site, tmp_path, "check", str(job))
    assert (code, trace.exists()) == (2, True), said
    assert 'job.method = "mine" has the holder run a method of another package' in said
    policy.write_text(f'open = true\n[data.rows]\npaths = [{paths}]\nmethods = ["mine"]\n[data.other]\npaths = ["other.csv"]\n')
    code, said = command(site, tmp_path, "check", str(job))
    assert code == 0, said


def test_entry_points_that_are_wrong_are_named(outsider, tmp_path):
    site, _ = outsider
    job = write_job(tmp_path)
    code, said = command(site, tmp_path, "check", str(job), "--set", "job.method=nothing")
    assert (code, "which is no fedkern.jobs.method.Method" in said) == (2, True), said
    code, said = command(site, tmp_path, "check", str(job), "--set", "job.method=lost")
    assert (code, "'lost' of outsider cannot be loaded (AttributeError)" in said) == (2, True), said
    other = site / "second-1.0.dist-info"
    other.mkdir()
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: second\nVersion: 1.0\n")
    (other / "entry_points.txt").write_text("[fedkern.methods]\nmine = second:METHOD\npvi = second:METHOD\n")
    code, said = command(site, tmp_path, "check", str(job))
    assert (code, "outsider and second bring 'mine'; uninstall all but one" in said) == (2, True), said
    code, said = command(site, tmp_path, "check", str(job), "--set", "job.method=pvi")
    assert (code, "second brings 'pvi', which is fedkern's own" in said) == (2, True), said


def test_a_policy_names_the_places_of_other_packages(tmp_path, monkeypatch):
    job = write_job(tmp_path, "likelihood")
    paths = ", ".join(f'"{tmp_path / "rows" / name}.csv"' for name in ("ada", "bo"))
    policy = tmp_path / "rows" / "fedkern-policy.toml"
    policy.write_text(f"open = true\n[data.rows]\npaths = [{paths}]\n")
    assert fedkern.run(job).converged
    with refusal(JobError, "support.outside.threads:Alone"):
        fedkern.run(job, place=threads.Alone(InProcess()))
    policy.write_text(f'open = true\nplaces = ["support.outside.threads:Alone"]\n[data.rows]\npaths = [{paths}]\n')
    assert fedkern.run(job, place=threads.Alone(InProcess())).converged


def test_a_place_by_its_name(outsider, tmp_path):
    site, trace = outsider
    job = write_job(tmp_path, "likelihood")
    code, said = command(site, tmp_path, "run", str(job), "--place", "mine", "--out", str(tmp_path / "out"))
    assert code == 0, said
    assert trace.exists()
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["converged"]
    code, said = command(site, tmp_path, "run", str(job), "--place", "his")
    assert (code, "no installed package brings it; there are mine" in said) == (2, True), said


def refuse(folder, name="nobody.toml", methods=""):
    """Writes a policy that names none of the job's data."""
    path = folder / name
    path.write_text(f"{methods}open = true\n[data.other]\npaths = ['other.csv']\n")
    return path


def site_with_policy(folder):
    (folder / "site.toml").write_text(f'policy = "{refuse(folder)}"\n')


def site_with_path(folder):
    """The data that the holder's site file gives lie beside a policy; those of the job do not."""
    for name in ("ada", "bo"):
        (folder / "sites").mkdir(exist_ok=True)
        (folder / "own" / name).mkdir(parents=True)
        (folder / "rows" / f"{name}.csv").rename(folder / "own" / name / "data.csv")
        (folder / "rows" / f"{name}.csv").write_text("x,y\n")
        (folder / "sites" / f"{name}.toml").write_text(f'path = "../own/{name}/data.csv"\n')
    refuse(folder / "own" / "bo", "fedkern-policy.toml")


def link_on_the_way(folder):
    (folder / "middle").mkdir()
    (folder / "real").mkdir()
    (folder / "rows" / "bo.csv").rename(folder / "real" / "bo.csv")
    (folder / "middle" / "bo.csv").symlink_to(folder / "real" / "bo.csv")
    (folder / "rows" / "bo.csv").symlink_to(folder / "middle" / "bo.csv")
    refuse(folder / "middle", "fedkern-policy.toml")


def lost_policy(folder):
    (folder / "rows" / "fedkern-policy.toml").symlink_to(folder / "nothing.toml")


def required(folder):
    return {"FEDKERN_REQUIRE_POLICY": "1"}


def given_site(folder):
    (folder / "mine").mkdir()
    (folder / "mine" / "holder.toml").write_text(f'policy = "{refuse(folder)}"\n')
    return {"FEDKERN_SITE": str(folder / "mine" / "holder.toml")}


@pytest.mark.parametrize("hidden", [site_with_policy, site_with_path, link_on_the_way, lost_policy, required, given_site])
def test_every_policy_that_may_bind_is_asked_before_an_import(outsider, tmp_path, hidden):
    site, trace = outsider
    job = write_job(tmp_path)
    more = hidden(tmp_path) or {}
    code, said = command(site, tmp_path, "check", str(job), **more)
    assert (code, trace.exists()) == (2, False), said


def test_the_record_of_a_run_imports_nothing_that_a_policy_does_not_allow(outsider, tmp_path):
    """A server's folder that names a method of another package: to look at it is no way round a policy."""
    site, trace = outsider
    job = write_job(tmp_path, "likelihood")
    out = tmp_path / "out"
    assert command(site, tmp_path, "run", str(job), "--out", str(out))[0] == 0
    (tmp_path / ".fedkern").mkdir()
    policy = refuse(tmp_path / ".fedkern", "policy.toml")
    for names in (["summary.json"], ["job.json"]):
        kept = {name: (out / name).read_text() for name in names}
        for name, text in kept.items():
            (out / name).write_text(text.replace('"likelihood"', '"mine"'))
        for words in (
            ["report", str(out)],
            ["report", str(out), "--table", "csv"],
            ["ledger", str(out)],
            ["predict", str(out), str(job)],
        ):
            said = command(site, tmp_path, *words)
            assert not trace.exists(), (words, said)
        for name, text in kept.items():
            (out / name).write_text(text)
    (out / "summary.json").write_text((out / "summary.json").read_text().replace('"likelihood"', '"mine"'))
    refuse(policy.parent, "policy.toml", 'methods = ["mine"]\n')
    command(site, tmp_path, "report", str(out), "--table", "csv")
    assert trace.exists()


def test_a_policy_beside_new_rows_is_asked_before_the_package_is_imported(outsider, tmp_path):
    """Rows to predict are none of the job's, and lie beside a policy of their own."""
    site, trace = outsider
    job = write_job(tmp_path, "likelihood")
    out, new = tmp_path / "out", tmp_path / "new" / "rows.csv"
    assert command(site, tmp_path, "run", str(job), "--out", str(out))[0] == 0
    new.parent.mkdir()
    new.write_text("x\n0.5\n")
    ways = (["predict", str(out), str(new)], ["predict", str(out), "--party", f"ada={new}"])
    code, said = command(site, tmp_path, *ways[0])
    assert code == 0, said
    text = (out / "summary.json").read_text()
    (out / "summary.json").write_text(text.replace('"likelihood"', '"mine"'))
    (out / "job.json").write_text((out / "job.json").read_text().replace('"likelihood"', '"mine"'))
    policy = refuse(new.parent, "fedkern-policy.toml")
    for words in (*ways, [*ways[0], "--client", "ada", "--out", str(tmp_path / "part.csv")]):
        code, said = command(site, tmp_path, *words)
        assert (code, trace.exists()) == (2, False), (words, said)
        assert 'job.method = "mine" has the holder run a method of another package' in said
    refuse(policy.parent, policy.name, 'methods = ["mine"]\n')
    command(site, tmp_path, *ways[0])
    assert trace.exists()


def test_in_python_a_policy_beside_new_rows_is_asked_too(tmp_path, monkeypatch):
    result = fedkern.run(write_job(tmp_path, "likelihood"), out=tmp_path / "out")
    new = tmp_path / "new" / "rows.csv"
    new.parent.mkdir()
    new.write_text("x\n0.5\n")
    assert len(result.prediction(new).mean) == 1
    refuse(new.parent, "fedkern-policy.toml")
    asked = []
    monkeypatch.setattr("fedkern.methods.METHODS", ())
    monkeypatch.setattr("fedkern.methods.installed.entry", lambda *args, **more: "found")
    monkeypatch.setattr("fedkern.methods.installed.loaded", asked.append)
    for rows in (new, str(new), {"ada": new}):
        with pytest.raises(JobError, match="has the holder run a method of another package"):
            result.prediction(rows)
    assert not asked


def test_a_policy_is_asked_before_a_place_is_imported(outsider, tmp_path):
    site, trace = outsider
    job = write_job(tmp_path, "likelihood")
    policy = tmp_path / "rows" / "fedkern-policy.toml"
    paths = ", ".join(f'"{tmp_path / "rows" / name}.csv"' for name in ("ada", "bo"))
    for places, want in (
        ([], (2, False)),
        (["outsiders.place:Place"], (2, False)),
        (["outsider:Other"], (2, True)),
        (["outsider:Mine"], (0, True)),
    ):
        policy.write_text(f"open = true\nplaces = {json.dumps(places)}\n[data.rows]\npaths = [{paths}]\n")
        code, said = command(
            site, tmp_path, "run", str(job), "--place", "mine", "--out", str(tmp_path / f"out-{len(places)}{want}")
        )
        assert (code, trace.exists()) == want, said
        trace.unlink(missing_ok=True)


def test_a_policy_says_whether_sites_of_a_relay_may_carry_messages(tmp_path):
    job = write_job(tmp_path, "likelihood")
    policy = tmp_path / "rows" / "fedkern-policy.toml"
    paths = ", ".join(f'"{tmp_path / "rows" / name}.csv"' for name in ("ada", "bo"))
    for places, want in ("", 2), ('places = ["fedkern.places:Spoke"]\n', 0):
        policy.write_text(f"open = true\n{places}[data.rows]\npaths = [{paths}]\n")
        said = []
        codes = threads.over(lambda place: 0 * bool(fedkern.run(job, place=place)), ("ada", "bo"), said)
        assert set(codes) == {want}, said
        assert any("refused by the holder's policy" in line for line in said) == (want == 2)


def test_a_package_that_lies_beside_a_job_is_not_installed(outsider, tmp_path):
    """Python finds it in the current folder: whoever sent the job would choose code that runs here."""
    site, trace = outsider
    job = write_job(tmp_path)
    for path in list(site.iterdir()):
        path.rename(tmp_path / path.name)
    env = {**os.environ, "HOME": str(tmp_path)}
    for words in (["-m", "fedkern", "check", str(job)], ["-c", "import fedkern; fedkern.check('job.toml')"]):
        done = subprocess.run([sys.executable, *words], capture_output=True, text=True, env=env, cwd=tmp_path, timeout=120)
        assert done.returncode, done.stdout
        assert 'job.method = "mine": wanted' in done.stdout + done.stderr
        assert not trace.exists()


def test_a_module_beside_a_job_does_not_stand_for_that_of_an_installed_package(outsider, tmp_path):
    site, trace = outsider
    job = write_job(tmp_path)
    (tmp_path / "outsider.py").write_text(f"from pathlib import Path\nPath({str(tmp_path / 'wrong')!r}).write_text('')\n")
    env = {**os.environ, "PYTHONPATH": f"{os.environ.get('PYTHONPATH', '')}{os.pathsep}{site}", "HOME": str(tmp_path)}
    words = [sys.executable, "-m", "fedkern", "check", str(job)]
    done = subprocess.run(words, capture_output=True, text=True, env=env, cwd=tmp_path, timeout=120)
    assert (done.returncode, trace.exists(), (tmp_path / "wrong").exists()) == (0, True, False), done.stderr


def test_the_holders_own_check_refuses_what_a_run_refuses(outsider, tmp_path):
    site, _ = outsider
    job = write_job(tmp_path)
    text = f'open = true\nmethods = ["mine"]\n[data.other]\npaths = ["{tmp_path}/other.csv"]\n[data.ada]\nmethods = []\n'
    (tmp_path / "rows" / "fedkern-policy.toml").write_text(f'{text}paths = ["{tmp_path}/rows/ada.csv"]\n')
    code, said = command(site, tmp_path, "check", str(job), "--local", str(tmp_path / "rows" / "ada.csv"))
    assert "is refused: " in said, said
    assert code == 2


def test_a_policy_beside_the_checked_file_is_asked_before_the_package_is_imported(outsider, tmp_path):
    """The file need not be one that the job names: its holder checks it before the job has come."""
    site, trace = outsider
    job = write_job(tmp_path)
    other = tmp_path / "holder"
    other.mkdir()
    (tmp_path / "rows" / "ada.csv").rename(other / "cleo.csv")
    words = ("check", str(job), "--local", str(other / "cleo.csv"))
    policy, binds = other / "fedkern-policy.toml", f'open = true\n[data.cleo]\npaths = ["{other}/cleo.csv"]\n'
    policy.write_text(binds)
    code, said = command(site, tmp_path, *words)
    assert (code, trace.exists()) == (2, False), said
    assert "mine is not among its methods" in said
    policy.write_text(f'methods = ["mine"]\n{binds}')
    code, said = command(site, tmp_path, *words)
    assert (code, trace.exists()) == (0, True), said
