"""A holder's policies: what their files may say, where they are found, what they bind, and where a budget lies."""

from __future__ import annotations

import os
from collections import namedtuple
from pathlib import Path
from types import SimpleNamespace

import pytest

from fedkern.errors import JobError
from fedkern.jobs.holding import binding
from fedkern.jobs.holding.binding import account, bind
from fedkern.jobs.holding.budget import Books, Holder
from fedkern.jobs.holding.policy import DataSet, read_policies
from fedkern.privacy.accountant import Mechanism

Charge = namedtuple("Charge", "steps round")
M = Mechanism(sampling="poisson", sampling_rate=0.05, noise_multiplier=3.0, clip=1.0, dimension=20)
DELTA = 1e-5
LARGEST = M.max_steps(1.0, DELTA)


class World:
    """A machine with a home, a client home, an /etc/fedkern and data of its own."""

    def __init__(self, root: Path) -> None:
        self.data, self.home, self.etc, self.clients = (root / name for name in ("data", "home", "etc", "clients"))
        for folder in (self.data, self.home, self.etc):
            folder.mkdir()
        self.file = self.data / "survey.csv"
        self.file.write_text("y\n1\n")

    def place(self, where: str) -> Path:
        return {
            "beside": self.data / "fedkern-policy.toml",
            "system": self.etc / "policy.toml",
            "home": self.home / ".fedkern" / "policy.toml",
            "root": self.clients / "policy.toml",
            "own": self.clients / "a" / "policy.toml",
            "other": self.clients / "b" / "policy.toml",
        }[where]

    def policy(self, where: str, head: str = "", data: str = "survey", **more: object) -> Path:
        path = self.place(where)
        path.parent.mkdir(parents=True, exist_ok=True)
        table = {"epsilon": 1.0, "delta": DELTA} | more
        lines = [f"{key} = {str(value).lower() if isinstance(value, bool) else repr(value)}" for key, value in table.items()]
        path.write_text(head + f"\n[data.{data}]\n" + "\n".join(lines) + "\n")
        return path

    def bind(self, client: str = "a", path: Path | None = None, **more: str) -> binding.Binding:
        file = path or self.file
        names = dict.fromkeys((file.stem, Path(os.path.realpath(file)).stem))
        return bind(client, DataSet(tuple(names), (file,)), **more)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    made = World(tmp_path)
    monkeypatch.setattr(binding, "SYSTEM", made.etc)
    monkeypatch.setenv("HOME", str(made.home))
    monkeypatch.setenv("FEDKERN_CLIENT_HOME", str(made.clients))
    monkeypatch.delenv("FEDKERN_REQUIRE_POLICY", raising=False)
    return made


EVERYWHERE = ("beside", "system", "home", "root", "own")

# --- the file


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[data.survey]\nepsilon = 1\n", r"data\.survey\.delta is missing: a number above 0 and below 1"),
        ("[data.survey]\nepsilon = 1\ndelta = 1", r"data\.survey\.delta = 1: wanted a number less than 1 \(a number above 0 and"),
        ("[data.survey]\nepsilon = 0\ndelta = 1e-5", r"data\.survey\.epsilon = 0: wanted a number greater than 0 \(a"),
        ("[data.survey]\nepsilon = true\ndelta = 1e-5", r"data\.survey\.epsilon = true: wanted a number"),
        ("[data.survey]\nepsilon = inf\ndelta = 1e-5", r"data\.survey\.epsilon = inf: wanted a finite number"),
        ("[data.survey]\nepsilon = nan\ndelta = 1e-5", r"data\.survey\.epsilon = nan: wanted a finite number"),
        ("[data.survey]\nopen = true\nepsilon = 1", r"data\.survey\.delta is missing: a number"),
        ("[data.survey]\n", r"data\.survey\.epsilon is missing: .*; also data\.survey\.delta is missing: "),
        ("[data.survey]\nepsilom = 1\n", r"unknown key data\.survey\.epsilom; did you mean data\.survey\.epsilon\?"),
        ("[data.survey]\ntall = 1\n", r"unknown key data\.survey\.tall; there are paths, epsilon, delta, fingerprint, open"),
        ("[data.survey]\nepsilon = 1\ndelta = 1e-5\nopen = 'yes'", r'data\.survey\.open = "yes": wanted true or false'),
        ("require = 1", "require = 1: wanted true or false"),
        ("[data.survey]\nepsilon = 1\ndelta = 1e-5\npaths = [1]", r"data\.survey\.paths\.0 = 1: wanted a text in quotes \(files"),
        ("[data.survey]\nepsilon = 1\ndelta = 1e-5\npaths = ['']", r'data\.survey\.paths\.0 = "": wanted a path'),
        ('[data.survey]\nepsilon = 1\ndelta = 1e-5\npaths = "a\\u0000"', r'data\.survey\.paths\.0 = "a\\u0000": wanted a path'),
        ("[data.survey]\nepsilon = 1\ndelta = 1e-5\nfingerprint = 3", r"data\.survey\.fingerprint = 3: wanted a text in quotes"),
        ("accounts = ['x']", r'accounts = \["x"\]: wanted a text in quotes \(a folder for budgets'),
        ("least_noise_multiplier = 0", "least_noise_multiplier = 0: wanted a number greater than 0"),
        ("data = 3", r"data = 3: wanted a table \(a table \[data.NAME\] for each data set"),
        ("[data]\nsurvey = 3", r"data\.survey = 3: wanted a table \(a table \[data.NAME\] for each data set"),
        ("units = 'example'", r"unknown key units; did you mean unit\?"),
        ("unit = 'person'\n[data.survey]\nepsilon = 1\ndelta = 1e-5", r'unit\.0 = "person": wanted "example", "client" or'),
        ("noise_source = []", r"noise_source = \[\]: wanted at least one"),
        ("epsilon = ", "can't be read as a policy"),
        (b"\xff\xfe", "can't be read as a policy"),
    ],
)
@pytest.mark.parametrize("where", ["beside", "root"])
def test_a_faulty_policy_allows_nothing(world: World, content: str | bytes, message: str, where: str) -> None:
    path = world.policy(where)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(JobError, match="policy.toml: .*" + message):
        world.bind()


def test_a_sound_file_of_all_keys_is_no_fault(world: World) -> None:
    head = 'require = true\nopen = true\nunit = "example"\nnoise_source = ["secure", "keyed"]\nleast_noise_multiplier = 1\n'
    path = world.policy("home", head + "accounts = 'x'", paths=["a.csv"], fingerprint="f", open=False, client_level=True)
    found = read_policies(path)
    (policy,) = found.policies
    assert (found.require, found.accounts) == (True, path.parent / "x")
    assert (policy.units, policy.noise_sources, policy.least_noise) == (("example", "client"), ("secure", "keyed"), 1.0)
    assert (policy.epsilon, policy.delta, policy.fingerprint, policy.open) == (1.0, DELTA, "f", False)


def test_a_policy_that_cannot_be_opened_allows_nothing(world: World) -> None:
    world.place("home").parent.mkdir()
    world.place("home").mkdir()
    with pytest.raises(JobError, match="can't be read as a policy"):
        world.bind()
    world.place("home").rmdir()
    world.place("home").symlink_to("nowhere")
    with pytest.raises(JobError, match="can't be read as a policy"):
        world.bind()


def test_what_a_file_says_with_defaults(world: World) -> None:
    path = world.policy("home", 'unit = ["example"]\nclient_level = true\n', paths=["x/*.csv"])
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())  # Windows editors
    (found,) = read_policies(path).policies
    assert (found.units, found.noise_sources, found.open, found.least_noise) == (("example", "client"), ("secure",), False, 0.0)
    assert found.paths == (path.parent / "x/*.csv",)
    path.write_text("open = true\n[data.a]\n[data.b]\nopen = false\nepsilon = 1\ndelta = 1e-5\n")
    a, b = read_policies(path).policies
    assert (a.open, a.epsilon, a.delta) == (True, float("inf"), None)
    assert (b.open, b.epsilon) == (False, 1.0)


@pytest.mark.parametrize(
    ("head", "change", "reason"),
    [
        ("", {"unit": "client"}, "privacy.unit = 'client', allowed: example"),
        ("", {"secure": False}, "privacy.noise_source = 'keyed', allowed: secure"),
        ("least_noise_multiplier = 4.0", {}, "privacy.noise_multiplier = 3, the smallest allowed: 4"),
        ('unit = ["client"]', {}, "privacy.unit = 'example', allowed: client"),
    ],
)
def test_mechanisms_that_a_policy_does_not_allow(world: World, head: str, change: dict[str, object], reason: str) -> None:
    (policy,) = read_policies(world.policy("home", head)).policies
    refusal = policy.refuses(Mechanism.from_dict(M.as_dict() | change))
    assert refusal is not None
    assert refusal.detail == reason
    assert "ask the holder" in refusal.ask
    assert "4" not in refusal.ask
    assert policy.refuses(Mechanism.from_dict(M.as_dict() | {"noise_multiplier": 5.0})) is None or head.startswith("unit")


# --- where it is found, and what it binds


@pytest.mark.parametrize("where", EVERYWHERE)
def test_a_policy_binds_wherever_it_lies(world: World, where: str) -> None:
    assert world.bind().policies == ()
    assert world.bind().refusal("open") is None, "without any policy jobs run as they always did"
    world.policy(where)
    found = world.bind()
    assert [policy.data for policy in found.policies] == ["survey"]
    assert found.refusal("private") is None
    for use, asked in (("open", "open = true"), ("client-level", "client_level = true")):
        refusal = found.refusal(use)
        assert refusal is not None
        assert asked in refusal.ask
        assert str(world.data.parent) not in refusal.ask
    world.policy(where, open=True, client_level=True)
    assert all(world.bind().refusal(use) is None for use in ("open", "client-level", "private"))


@pytest.mark.parametrize("where", EVERYWHERE)
@pytest.mark.parametrize("second", EVERYWHERE)
def test_all_that_are_found_must_allow_a_job(world: World, where: str, second: str) -> None:
    world.policy(where, open=True)
    world.policy(second, open=False)
    assert world.bind().refusal("open") is not None


def link_to_file(world: World) -> Path:
    (world.home / "link.csv").symlink_to(world.file)
    return world.home / "link.csv"


def link_in_two_steps(world: World) -> Path:
    (world.home / "first.csv").symlink_to("second.csv")
    (world.home / "second.csv").symlink_to(os.path.relpath(world.file, world.home))
    return world.home / "first.csv"


def link_to_folder(world: World) -> Path:
    (world.home / "folder").symlink_to(world.data)
    return world.home / "folder" / "survey.csv"


def dots(world: World) -> Path:
    return world.data / ".." / "data" / "." / "survey.csv"


def process(world: World) -> Path:
    return Path(f"/proc/self/root{world.file}")


@pytest.mark.parametrize("way", [link_to_file, link_in_two_steps, link_to_folder, dots, process])
@pytest.mark.parametrize("named", ["file", "data"])
@pytest.mark.parametrize("where", ["beside", "home"])
def test_no_way_to_the_file_leads_round_its_policy(world: World, way: object, where: str, named: str) -> None:
    world.policy(where, data="whatever", paths=[str(getattr(world, named))])
    assert world.bind(path=way(world)).refusal("open") is not None  # type: ignore[operator]


@pytest.mark.parametrize("named", ["file", "data"])
def test_a_hard_link_is_the_file_it_links_to(world: World, named: str) -> None:
    """For a policy that names the file, or a folder it is in; nothing leads from the link to what lies beside the file."""
    world.policy("home", data="whatever", paths=[str(getattr(world, named))])
    os.link(world.file, world.home / "another.csv")
    assert world.bind(path=world.home / "another.csv").refusal("open") is not None
    (world.home / "copy.csv").write_bytes(world.file.read_bytes())
    assert world.bind(path=world.home / "copy.csv").policies == ()


def test_case_and_accents_of_a_file_are_no_way_round(world: World) -> None:
    path = world.data / "E\u0301tude.csv"
    path.write_text("y\n")
    world.policy("home", data='"étude"')
    assert world.bind(path=path).policies != ()


def test_a_policy_beside_a_link_binds_too(world: World) -> None:
    path = link_to_file(world)
    (world.home / "fedkern-policy.toml").write_text("[data.survey]\nepsilon = 1\ndelta = 1e-5\n")
    (world.etc / "link.csv").symlink_to(path)  # a link to the link
    for way in (path, world.etc / "link.csv"):
        assert world.bind(path=way).refusal("open") is not None
    assert world.bind().refusal("open") is None


@pytest.mark.parametrize(
    "paths",
    ["{data}/survey.csv", "../../data/survey.csv", "{data}", "{data}/*.csv", "{root}/**/s*.csv", "{data}/hard.csv", "~/link.csv"],
)
def test_paths_of_a_policy(world: World, paths: str) -> None:
    os.link(world.file, world.data / "hard.csv")
    link_to_file(world)
    other = world.home / "other.csv"
    other.write_text("y\n")
    world.policy("home", data="x", paths=[paths.format(data=world.data, root=world.data.parent / "data")])
    assert [policy.data for policy in world.bind().policies] == ["x"]
    assert world.bind(path=other).policies == ()


def test_a_renamed_file_is_known_by_what_it_links_to(world: World) -> None:
    world.policy("home")
    assert world.bind(path=link_to_file(world)).policies != ()


def test_pairs_and_folders_of_arrays(world: World) -> None:
    from fedkern.data.table import files_of

    elsewhere = world.home / "store"
    elsewhere.mkdir()
    for name in ("r.X.npy", "r.y.npy", "X.npy", "y.npy"):
        (elsewhere / name).write_bytes(b"")
    (world.data / "r.X.npy").write_bytes(b"")
    (world.data / "r.y.npy").symlink_to(elsewhere / "r.y.npy")
    (elsewhere / "fedkern-policy.toml").write_text("[data.other]\nepsilon = 1\ndelta = 1e-5\n")
    for path in (world.data / "r.X.npy", elsewhere):  # the response's file lies beside the policy; the folder holds it
        refusal = bind("a", DataSet((path.stem,), files_of(path))).refusal("private")
        assert refusal is not None
        assert "name" in refusal.ask


@pytest.mark.parametrize("where", EVERYWHERE)
@pytest.mark.parametrize("how", ["require", "environment"])
def test_required_policies(world: World, where: str, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    world.policy(where, "require = true" if how == "require" else "", data="other", open=True)
    if how == "environment":
        monkeypatch.setenv("FEDKERN_REQUIRE_POLICY", "1")
    for use in ("open", "client-level", "private"):
        refusal = world.bind().refusal(use)
        assert refusal is not None
        assert "ask the holder to name them" in refusal.ask
    world.policy(where, "require = true", open=True)
    assert world.bind().refusal("open") is None


def test_unnamed_data_without_require(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for where in ("system", "home", "root"):
        world.policy(where, data="other")
    assert world.bind().refusal("open") is None
    for value, refused in (("", False), ("0", False), ("1", True), ("yes", True)):
        monkeypatch.setenv("FEDKERN_REQUIRE_POLICY", value)
        assert (world.bind().refusal("open") is not None) == refused


def test_another_name_for_the_client_finds_the_same_policy(world: World) -> None:
    world.policy("own", open=True)
    assert world.bind("a").refusal("open") is None
    for name in ("zz", "A"):
        refusal = world.bind(name).refusal("private")
        assert refusal is not None
        assert "under which name it takes part" in refusal.ask
    world.policy("other", open=True, data="else", paths=[str(world.file)])  # of client b, and means the same file
    assert world.bind("a").refusal("open") is not None


def test_clients_of_one_machine_that_call_their_files_alike(world: World) -> None:
    (world.home / "survey.csv").write_text("y\n2\n")
    world.policy("own", paths=[str(world.file)])
    world.policy("other", paths=[str(world.home / "survey.csv")])
    assert world.bind("a").refusal("private") is None
    assert world.bind("b", world.home / "survey.csv").refusal("private") is None
    assert world.bind("b").refusal("private") is not None
    assert world.bind("a", world.home / "survey.csv").refusal("private") is not None


def test_a_folder_of_another_client_that_is_closed_to_us(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine that several holders share each can read its own; what can't be listed may hold anything."""
    world.policy("own", open=True)
    path, real = world.policy("other", "nonsense = 1"), os.access
    with pytest.raises(JobError, match="nonsense"):
        world.bind()
    monkeypatch.setattr(os, "access", lambda at, mode: Path(at) != path and real(at, mode))
    assert world.bind().refusal("open") is None
    monkeypatch.setattr(os, "listdir", lambda at: (_ for _ in ()).throw(PermissionError(13, "Permission denied")))
    with pytest.raises(JobError, match="Permission denied"):
        world.bind()


def test_a_client_without_a_policy_among_others_with_one(world: World) -> None:
    world.policy("other", data="other")
    assert "ask the holder to name them" in world.bind("zz").refusal("open").ask  # type: ignore[union-attr]
    assert world.bind("server", must="asked").refusal("open") is None, "the server's file is no client's"
    assert world.bind("server", must="never").required is None


def test_built_in_data_belong_to_the_client_of_the_name(world: World) -> None:
    """They have no path: parts of several clients on one machine have one name."""
    world.policy("own", data="adult", open=True)
    world.policy("other", data="adult")
    assert bind("a", DataSet(("adult",))).refusal("open") is None
    assert bind("b", DataSet(("adult",))).refusal("open") is not None
    assert bind("zz", DataSet(("adult",))).refusal("private") is not None


# --- where the budget lies


def charge(found: binding.Binding, steps: int, job: str) -> int:
    where = account(found)
    assert where is not None
    holder = Holder("a", where, job=job, mechanism=M, epsilon=float("inf"), delta=DELTA)
    return holder.charge(Charge(steps, 0)).granted


@pytest.mark.parametrize("where", EVERYWHERE)
def test_it_lies_with_the_policy(world: World, where: str) -> None:
    path = world.policy(where)
    assert charge(world.bind(), 10, "j1") == 10
    folder = path.parent / ".fedkern" if where == "beside" else path.parent
    assert (folder / "budget.jsonl").exists()
    assert len([*world.data.parent.rglob("budget.jsonl")]) == 1


@pytest.mark.parametrize("where", EVERYWHERE[:4])
def test_neither_the_name_nor_the_way_to_the_file_begins_another(world: World, where: str) -> None:
    world.policy(where, data="ward", paths=[str(world.file)])
    assert charge(world.bind(), LARGEST, "j1") == LARGEST
    assert charge(world.bind("zz"), 1, "j2") == 0
    assert charge(world.bind("a", link_in_two_steps(world)), 1, "j3") == 0


@pytest.mark.parametrize("where", EVERYWHERE[:3])
@pytest.mark.parametrize("second", EVERYWHERE)
@pytest.mark.parametrize("first", [True, False], ids=["set first", "unset first"])
def test_neither_does_the_environment(
    world: World, where: str, second: str, first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.policy(where)
    world.policy(second)
    if not first:
        monkeypatch.delenv("FEDKERN_CLIENT_HOME")
    assert charge(world.bind(), LARGEST, "j1") == LARGEST
    if first:
        monkeypatch.delenv("FEDKERN_CLIENT_HOME")
    else:
        monkeypatch.setenv("FEDKERN_CLIENT_HOME", str(world.clients))
    assert charge(world.bind(), 1, "j2") == 0


@pytest.fixture
def sealed(world: World, monkeypatch: pytest.MonkeyPatch) -> set[Path]:
    """Folders that cannot be written (root may write anywhere)."""
    closed: set[Path] = set()
    real = os.access

    def access(path: Path, mode: int) -> bool:
        return not (mode & os.W_OK and closed & {Path(path), *Path(path).parents}) and real(path, mode)

    monkeypatch.setattr(os, "access", access)
    return closed


@pytest.mark.parametrize("where", ["beside", "system"])
def test_a_folder_that_cannot_be_written(world: World, where: str, sealed: set[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """The first home that can be written takes its place, for every client, wherever FEDKERN_CLIENT_HOME points."""
    path = world.policy(where)
    sealed.add(path.parent)
    assert charge(world.bind(), LARGEST, "j1") == LARGEST
    (ledger,) = world.data.parent.rglob("budget.jsonl")
    assert ledger.is_relative_to(world.home / ".fedkern")
    assert ledger.parent.stat().st_mode & 0o777 == 0o700
    monkeypatch.delenv("FEDKERN_CLIENT_HOME")
    assert charge(world.bind("zz"), 1, "j2") == 0
    sealed.clear()  # it can be written now: what the spare place tells still counts
    assert charge(world.bind(), 1, "j3") == 0


@pytest.mark.parametrize("where", ["beside", "system"])
def test_nor_does_a_policy_of_the_client_home_lead_it_away(
    world: World, where: str, sealed: set[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    sealed.add(world.policy(where).parent)
    world.policy("root")
    assert charge(world.bind(), LARGEST, "j1") == LARGEST
    monkeypatch.delenv("FEDKERN_CLIENT_HOME")
    assert charge(world.bind(), 1, "j2") == 0


def test_what_was_spent_before_a_policy_moved_still_counts(world: World) -> None:
    world.policy("root")
    assert charge(world.bind(), LARGEST - 5, "j1") == LARGEST - 5
    world.policy("beside")
    assert charge(world.bind(), 6, "j2") == 0
    assert charge(world.bind(), 5, "j2") == 5
    assert (world.data / ".fedkern" / "budget.jsonl").exists()
    world.place("beside").unlink()
    assert charge(world.bind(), 1, "j3") == 0


def test_nowhere_to_keep_it(world: World, sealed: set[Path]) -> None:
    world.policy("system")
    sealed.add(world.data.parent)
    with pytest.raises(JobError, match=r"can't be written, and the budget must be kept; give the policy a folder \(accounts"):
        account(world.bind())


def test_the_holder_may_say_where(world: World, sealed: set[Path]) -> None:
    accounts = world.data.parent / "var"
    world.policy("system", f"accounts = {str(accounts)!r}")
    world.policy("home")
    assert charge(world.bind(), 3, "j1") == 3
    assert [*world.data.parent.rglob("budget.jsonl")] == [accounts / "budget.jsonl"]
    sealed.add(accounts)
    with pytest.raises(JobError, match=f"{accounts}: can't be written"):
        account(world.bind())


def test_without_a_home(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for value in (None, "", "relative"):
        monkeypatch.setenv("HOME", value) if value is not None else monkeypatch.delenv("HOME")
        monkeypatch.setattr("pwd.getpwuid", lambda user: (_ for _ in ()).throw(KeyError(user)))  # a container's nameless user
        assert world.bind().policies == ()
        world.policy("own")
        assert charge(world.bind(), 1, f"job {value}") == 1
        world.place("own").unlink()


def test_a_home_that_is_hidden_from_its_user(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A service may run where /home shows nothing, and a policy there is not none. Somebody else's home is no fault."""
    world.policy("home", open=False)
    assert world.bind().refusal("open") is not None
    real = Path.lstat

    def hidden(path: Path) -> os.stat_result:
        if path.is_relative_to(world.home):
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr(Path, "lstat", hidden)
    user = SimpleNamespace(pw_dir=str(world.home))
    monkeypatch.setattr("pwd.getpwuid", lambda uid: user)
    with pytest.raises(JobError, match=r"home folder of this user is hidden .*ProtectHome=read-only"):
        world.bind()
    user.pw_dir = "/nonexistent"
    assert world.bind().refusal("open") is None


def test_data_sets_of_one_policy_have_budgets_of_their_own(world: World) -> None:
    other = world.data / "other.csv"
    other.write_text("y\n")
    world.place("beside").write_text("[data.survey]\nepsilon = 1\ndelta = 1e-5\n[data.other]\nepsilon = 1\ndelta = 1e-5\n")
    assert charge(world.bind(), LARGEST, "j1") == LARGEST
    assert charge(world.bind(path=other), LARGEST, "j1") == LARGEST
    assert charge(world.bind(path=other), 1, "j2") == 0


@pytest.mark.parametrize("smaller", ["home", "beside"])
def test_the_smallest_cap_of_several_policies(world: World, smaller: str) -> None:
    for where in ("home", "beside"):
        world.policy(where, epsilon=1.0 if where == smaller else 3.0)
    world.policy("system", open=True)
    world.place("system").write_text("[data.survey]\nopen = true\n")  # no cap
    assert charge(world.bind(), LARGEST + 1, "j1") == 0
    assert charge(world.bind(), LARGEST, "j1") == LARGEST


def test_a_new_account_is_noticed_and_jobs_without_one_are_told_of(world: World) -> None:
    world.policy("home", open=True)
    where = account(world.bind())
    assert where is not None
    for _ in range(2):
        Books(where).note("j0", "open")  # of a resumed job
    h = Holder("a", where, job="j1", mechanism=M, epsilon=1.0, delta=DELTA)
    assert not h.new, "an open job has been here"
    assert "all 0 jobs on these data: epsilon = 0 of 1 at delta = 1e-05; beside them 1 open jobs" in h.total().text()
    (world.home / ".fedkern" / "budget.jsonl").unlink()
    with pytest.raises(JobError, match="it was cut off, deleted"):
        Holder("a", where, job="j2", mechanism=M, epsilon=1.0, delta=DELTA)
    for mark in where.marks[0].iterdir():
        mark.unlink()
    for _ in range(2):
        assert Holder("a", where, job="j2", mechanism=M, epsilon=1.0, delta=DELTA).new, "also after it was resumed"
    assert not Holder("a", where, job="j3", mechanism=M, epsilon=1.0, delta=DELTA).new


def test_marks_of_budgets_lie_away_from_them(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.policy("home")
    where = account(world.bind())
    assert where is not None
    assert where.marks == (world.home / ".local" / "state" / "fedkern" / "budgets", world.clients / ".marks")
    Holder("a", where, job="j1", mechanism=M, epsilon=1.0, delta=DELTA)
    assert [folder.exists() for folder in where.marks] == [True, False]
    monkeypatch.delenv("FEDKERN_CLIENT_HOME")
    again = account(world.bind())
    assert again is not None
    assert again.marks == where.marks[:1]
