"""Finds the policies that bind a job's data, and the place of these data's budget. No key of a job file leads round them.

Policies are looked for

* beside the data, links resolved: `fedkern-policy.toml` in the folder of each of their files;
* where the holder's site file says, beside all other places;
* in `/etc/fedkern/policy.toml`, `~/.fedkern/policy.toml` and `$FEDKERN_CLIENT_HOME/policy.toml`;
* in `$FEDKERN_CLIENT_HOME/<client>/policy.toml`, for every client: the client's name is the job file's choice.

A policy binds if it names the data by one of their paths, by their id or by a fingerprint of their rows. All policies that bind
must allow the job. Data without a binding policy are refused in three cases: one of the files (or FEDKERN_REQUIRE_POLICY=1) says
`require`, a policy file lies beside the data, or clients' folders hold policies. Data that a policy in the folder of a client of
another name claims are refused too.

The budget lies with the policy and is kept by the data set's id there. So a new name of the client, another unit, run folder or
environment begins no new budget. If several places are possible, the first one that can be written is taken, beginning with those
that do not depend on the environment; budgets in the other places are counted too. A mark of the budget lies in another folder
(`marks`, `remembered`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Literal, NamedTuple

from ...data.table import BESIDE
from ...errors import JobError
from ...ground import Ground
from .policy import DataSet, Policy, PolicyFile, Refusal, Use, read_policies

CLIENT_HOME, REQUIRE = "FEDKERN_CLIENT_HOME", "FEDKERN_REQUIRE_POLICY"
POLICY, LEDGER = "policy.toml", "budget.jsonl"
SYSTEM = Path("/etc/fedkern")
MARKS = ".local/state/fedkern/budgets"  # in the user's home, where neither a policy nor a budget lies
ACCOUNTS = ".accounts"  # in a home: budgets of policies whose own folder can't be written

Where = Literal["beside", "site", "system", "home", "root", "own", "other"]


class Bound(NamedTuple):
    """Holds a policy that names the data, its file, and where that file lies."""

    where: Where
    file: PolicyFile
    policy: Policy


@dataclass(frozen=True)
class Account:
    """Holds where the budget of a data set lies, and which policies bind it."""

    folder: Path  # the folder of `budget.jsonl`
    data: str  # the data set's name there
    policies: tuple[Policy, ...] = ()  # all that bind
    # every budget file that may tell of these data -> the names that they may have in it
    known: Mapping[Path, frozenset[str]] = field(default_factory=dict)
    ground: Ground | None = None  # the ground below which the folder lies; None where the folder is one itself
    # folders for the holder's marks of its budgets (`remembered`), the best first; empty where no policy binds
    marks: tuple[Path, ...] = ()
    files: tuple[Path, ...] = ()  # the client's own, where several clients have their rows under one name of data


@dataclass(frozen=True)
class Binding:
    """Holds the policies that were found for one holder's data in one job."""

    # client, data: the holder's name in the job, and its data
    client: str
    data: DataSet
    files: tuple[tuple[Where, PolicyFile], ...] = ()  # all policy files that were looked at, and where each lies
    bound: tuple[Bound, ...] = ()  # the policies that name the data
    claimed: tuple[Policy, ...] = ()  # policies that name the data in the folder of a client of another name
    required: str | None = None  # the reason why a policy must name the data; None if none holds

    @property
    def policies(self) -> tuple[Policy, ...]:
        """The policies that bind the data."""
        return tuple(bound.policy for bound in self.bound)

    def refusal(self, use: Use, noise_source: str = "secure") -> Refusal | None:
        """Returns why a kind of job is refused; None if every binding policy allows it, or none binds and none is required."""
        if self.claimed:
            policy = self.claimed[0]
            return Refusal(
                "its data belong to a client of another name; ask the holder under which name it takes part (data.names), or to "
                "put its policy where it holds for every name",
                f"{policy.file} names these data, [data.{policy.data}], and the job calls the client {self.client!r}",
            )
        if self.required and not self.bound:
            names = " or ".join(f"[data.{name}]" for name in self.data.names)
            files = ", ".join(map(str, self.data.paths))
            among = f", or {files} among its paths" if files else ""
            return Refusal(
                "a policy must name its data, and none does; ask the holder to name them in one (a table [data.NAME] with their "
                "paths)",
                f"{self.required}, and no policy has {names}{among}",
            )
        return self.refused_by(lambda policy: [policy.refuses_use(use, noise_source)])

    def refused_by(self, refusals: Callable[[Policy], Iterable[Refusal | None]]) -> Refusal | None:
        """Returns the refusals of a job by its policies, with the policies' files; None if all allow it."""
        found = [(policy.file, one) for policy in self.policies for one in refusals(policy) if one is not None]
        details = (f"{file}: does not allow the job: {refusal.detail}" for file, refusal in found)
        return Refusal("; ".join(dict.fromkeys(refusal.ask for _, refusal in found)), "; ".join(details)) if found else None


def bind(client: str, data: DataSet, *, must: Literal["named", "asked", "never"] = "named") -> Binding:
    """Looks for the policies of a client's data. `must`: whether unnamed data are refused: wherever the head of this file says
    so; only where a file asks for it in words or lies beside them (the server's data); never (an account that is nobody's data).
    Raises JobError: a policy can't be read or is faulty: then it allows nothing."""
    files: list[tuple[Where, PolicyFile]] = []
    seen: set[str] = set()
    for where, path in _places(client, data):
        if where == "other" and not os.access(path, os.R_OK):
            continue  # of another user of this machine
        if _there(path) and (real := os.path.realpath(path)) not in seen:
            seen.add(real)
            files.append((where, read_policies(Path(real))))
    bound: list[Bound] = []
    claimed: list[Policy] = []
    for where, file in files:
        for policy in file.policies:
            listed, called = policy.lists(data) or policy.marks(data), policy.called(data)
            if where != "other":
                bound += [Bound(where, file, policy)] if listed or called else []
            elif listed or (called and not policy.paths):
                claimed.append(policy)
    if not data.paths and any(policy.where == "own" for policy in bound):  # built-in data: every client has a part of its own
        claimed = []
    return Binding(client, data, tuple(files), tuple(bound), tuple(claimed), _required(files, must))


def _required(files: list[tuple[Where, PolicyFile]], must: str) -> str | None:
    """Returns the reason why a policy must name the data; None where no reason holds."""
    if must == "never":
        return None
    if os.environ.get(REQUIRE, "0") not in ("", "0"):
        return f"{REQUIRE} is set"
    for where, file in files:
        if file.require:
            return f"{file.path} says require = true"
        if where in ("beside", "site"):
            return f"{file.path} lies beside the data" if where == "beside" else f"the site file names {file.path}"
        if where in ("own", "other") and must == "named":
            return f"clients' policies lie in {client_home()}"
    return None


def account(binding: Binding) -> Account | None:
    """Returns where the budget lies; None where no policy binds. Raises JobError: no place for it can be written."""
    if not binding.bound:
        return None
    places = _places_of_budgets(binding)
    fixed = [bound.file.accounts for bound in binding.bound if bound.file.accounts is not None]
    writable = [(folder, name) for folder, name in places.items() if _writable(folder) and (not fixed or folder == fixed[0])]
    if not writable:
        listed = ", ".join(str(folder) for folder in fixed[:1] or places)
        raise JobError(f"{listed}: can't be written, and the budget must be kept; give the policy a folder (accounts = PATH)")
    return Account(*writable[0], binding.policies, _known(binding, places), marks=marks(), files=binding.data.paths)


def _places_of_budgets(binding: Binding) -> dict[Path, str]:
    """Returns the folders that may keep the budget, each with the data set's name in it; the best folder first."""
    beside_policies = [(_folder_of(bound.file), bound.policy.data) for bound in binding.bound]
    steady = [
        place for place, bound in zip(beside_policies, binding.bound) if bound.where in ("beside", "site", "system", "home")
    ]
    spare = [(home / ACCOUNTS / _short(bound.file.path), bound.policy.data) for bound in binding.bound for home in _homes()]
    fixed = [(bound.file.accounts, bound.policy.data) for bound in binding.bound if bound.file.accounts is not None]
    best: dict[Path, str] = {}
    homes = spare if steady else []
    for folder, name in [*fixed, *steady, *homes, *beside_policies, *spare]:
        best.setdefault(folder, name)
    return best


def _folder_of(file: PolicyFile) -> Path:
    """Returns the folder in which a policy's budgets lie, if it can be written."""
    if file.accounts is not None:
        return file.accounts
    return file.path.parent / ".fedkern" if file.path.name == BESIDE else file.path.parent


def _known(binding: Binding, places: Mapping[Path, str]) -> dict[Path, frozenset[str]]:
    """Returns every budget file that may tell of the data, each with the names that the data may have in it."""
    ids = frozenset(binding.data.names) | {policy.data for policy in binding.policies}
    beside = [folder / ".fedkern" for path in binding.data.paths for folder in _folders(path)]
    folders = [*places, *beside, SYSTEM, *_homes()]
    if (home := client_home()) is not None:
        folders.append(home / binding.client)
    bound = {(policy.file.path, policy.policy.data) for policy in binding.bound}
    other: dict[Path, set[str]] = {}  # what other data are called in a folder
    for _, file in binding.files:
        here = {policy.data for policy in file.policies if (file.path, policy.data) not in bound}
        other.setdefault(_folder_of(file), set()).update(here)
    names = {f: ids - other.get(f, set()) for f in folders}
    for f, name in places.items():
        names[f] |= {name}
    return {f / LEDGER: of_data for f, of_data in names.items()}


def client_home() -> Path | None:
    """Returns the folder $FEDKERN_CLIENT_HOME; None where it is not set."""
    home = os.environ.get(CLIENT_HOME)
    return Path(os.path.realpath(home)) if home else None


def marks() -> tuple[Path, ...]:
    """Returns the folders for marks of budgets, away from the budgets where possible; the first that can be written is taken."""
    folders = ((_user(), MARKS), (client_home(), ".marks"))
    return tuple(home / name for home, name in folders if home is not None)


def _user_home() -> Path | None:
    """Returns ~/.fedkern, also where HOME is not set or is no absolute path; None where the user has no home."""
    home = _user()
    return None if home is None else home / ".fedkern"


def _user() -> Path | None:
    """Returns the home folder of this user; None where it is not known."""
    home = os.environ.get("HOME", "")
    return Path(os.path.realpath(home)) if os.path.isabs(home) else _registered_home()


def _registered_home() -> Path | None:
    """Returns the home folder that the system has for this user, whatever HOME says; None where it has none."""
    try:
        import pwd

        home = pwd.getpwuid(os.getuid()).pw_dir
    except (ImportError, KeyError):
        return None
    return Path(os.path.realpath(home)) if os.path.isabs(home) else None


def _homes() -> list[Path]:
    """Returns the folders where a holder may have budgets; those that do not depend on FEDKERN_CLIENT_HOME come first."""
    return list(dict.fromkeys(home for home in (_user_home(), client_home()) if home is not None))


def _places(client: str, data: DataSet) -> Iterator[tuple[Where, Path]]:
    """Yields the places where policies may be, in the order in which their folders are taken for budgets."""
    for folder in dict.fromkeys(folder for path in data.paths for folder in _folders(path)):
        yield "beside", folder / BESIDE
    if data.policy is not None:
        yield "site", data.policy
    yield "system", SYSTEM / POLICY
    home, root = _user_home(), client_home()
    if home is not None:
        yield "home", home / POLICY
    if root is None:
        return
    yield "root", root / POLICY
    yield "own", root / client / POLICY
    try:
        names = sorted(os.listdir(root))
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as fault:
        raise JobError(f"{root} ({CLIENT_HOME}): can't be read ({fault.strerror}), and policies may lie there") from None
    for name in names:
        if not name.startswith(".") and name != client:
            yield "other", root / name / POLICY


def known_policies() -> list[PolicyFile]:
    """Reads the policies in the usual places: of the system, of the user, and of $FEDKERN_CLIENT_HOME with its clients. Raises
    JobError: a policy file cannot be read, or is faulty."""
    paths = (path for _, path in _places("", DataSet(())) if _there(path) and os.access(path, os.R_OK))
    return [read_policies(path) for path in dict.fromkeys(Path(os.path.realpath(path)) for path in paths)]


def _folders(path: Path) -> Iterator[Path]:
    """Yields the folders of a file: by its name, by every link on the way, and the real one; a folder of arrays is one itself."""
    name = os.path.abspath(path)
    for _ in range(40):  # as many links as the kernel follows
        yield Path(os.path.dirname(name))
        yield Path(os.path.realpath(os.path.dirname(name)))
        if not os.path.islink(name):
            break
        name = os.path.join(os.path.dirname(name), os.readlink(name))
    if os.path.isdir(path):
        yield Path(os.path.realpath(path))


def _there(path: Path) -> bool:
    """Tells whether a policy file exists, readable or not. Raises JobError: that can't be told: its folder exists and does not
    let us look."""
    try:
        path.lstat()
        return True
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as fault:
        try:
            path.parent.lstat()
        except OSError:
            # HOME may be that of somebody else (after su). This user's own can be hidden, as ProtectHome= of systemd does.
            if not path.is_relative_to(_registered_home() or "/nowhere"):
                return False
            raise JobError(
                f"{path}: the home folder of this user is hidden ({fault.strerror}), and a policy may lie there; let "
                "the process read its home (ProtectHome=read-only in a systemd unit)"
            ) from None
        raise JobError(f"{path}: can't be read as a policy ({fault.strerror})") from None


def _writable(folder: Path) -> bool:
    """Tells whether a budget can be kept in a folder, which may have to be made first."""
    ledger = folder / LEDGER
    if os.path.exists(ledger):
        return os.access(ledger, os.R_OK | os.W_OK)
    while not os.path.exists(folder) and folder != folder.parent:
        folder = folder.parent
    return os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK)


def _short(policy: Path) -> str:
    """Returns a folder's name for a policy file."""
    text = re.sub(r"[^\w.-]+", "-", str(policy.parent)).strip("-.")[-60:]
    return f"{text}-{blake2b(os.fsencode(policy), digest_size=4).hexdigest()}"
