"""Writes and reads prior artifacts, the results of `fedkern sigma build` or `train`: one file for the server and one for each
client.

A folder of it holds

    manifest.json         the purpose of each file, with its digest; the format's number; the units
    server.npz            who takes part, the prior of the hyperparameter, and how the map's mean level follows from the global
                          latents: no network
    clients/<name>.npz    this client's own part: of a prior that was trained its decoder and encoder, scales and tau^2; of one
                          that was built its own map and its ties to the others. Nothing of another client's
    training/             files for the trainer alone (checkpoint, cached eigenvectors)

Each client gets its own file, the server its own; the manifest may go to all. Arrays are npz members without pickle, everything
else is one JSON text. The global encoder is in no file: nobody needs it (docs/spec/sigma.md, section 6).
"""

from __future__ import annotations

import io
import itertools
import json
import re
import zipfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
import scipy
from numpy.typing import NDArray

from ..arrays import Array
from ..errors import JobError
from ..ground import Ground
from ..kernels.mlp import Architecture
from ..models.spatial.condition import Condition, Hyperprior
from ..models.spatial.loadings import MeanLoadings
from ..models.spatial.within import Within
from ..plain import Record
from ..printing import listed

Made = TypeVar("Made", "ClientFile", "WithinFile", "ServerFile")
Kind = Literal["car", "leroux", "bym2", "gp"]

FORMAT = 1
UNITS = {
    "gamma": "standard deviation, of theta / scale",
    "scale": "standard deviation, of theta: theta = scale x decoder's output",
    "tau2": "variance, of theta",
    "true_variance": "variance, of theta",
    "hyperprior.variance": "variance, of logit phi",
}
SHARED = ("global_decoder", "encoder_weights", "decoder_weights")  # parts that are the same at all clients
OWN = ("prior", "posterior", "decoder")

MADE = "the folder of `fedkern sigma build` or `train`"


@dataclass(frozen=True)
class Common:
    """Holds the facts that every file of an artifact has."""

    id: str  # of the artifact, the same in all its files
    kind: Kind  # of the prior
    condition: Condition  # the hyperparameter, its training range and its prior
    # of the networks; "within" where there are none, and the prior is exact inside each client
    variant: Literal["printed", "amended", "multiplicative", "within"]
    n_global: int  # number of global latents p_G
    # hidden, local_hidden, width, rank: of the architecture
    hidden: int = 0
    local_hidden: int = 0
    width: int = 0
    rank: int = 0
    gamma: float = 0.0  # the networks' standard deviation, of theta / scale

    @property
    def within(self) -> bool:
        """Whether the prior is exact inside each client."""
        return self.variant == "within"


@dataclass(frozen=True, eq=False)
class ClientFile:
    """Holds one client's part of a prior that was trained."""

    common: Common  # the facts in all files
    # name, index: of the client, and its place among the clients
    name: str
    index: int
    n_local: int  # number of its local latents p_L
    scale: Array  # (d,) theta = scale * theta of the networks
    # part of the networks -> its parameters, a flat vector as `kernels.mlp.Architecture` lays it out for one client
    parts: Mapping[str, Array]
    tau2: Array  # (G, d) variances about the decoder's output at the G values of `tau_grid`; G = 1: one for all phi
    tau_grid: Array  # (G,) values of phi
    true_variance: Array  # (d,) of theta under the prior, phi averaged
    areas: tuple[str, ...] = ()  # names of the areas, in the order of theta
    # (d, p) of a Gaussian process, or the areas' centres where they are known, in the order of theta
    locations: Array | None = None
    # (k, 2) numbers of its own areas that are neighbours, each pair once, where it is known
    pairs: NDArray[np.int64] | None = None
    islands: tuple[str, ...] = ()  # names of its areas that the prior leaves out, as they have no neighbours
    digest: str = ""  # of the file that it was read from

    def __post_init__(self) -> None:
        d, g = self.d, len(self.tau_grid)
        wanted = {"scale": (d,), "tau2": (g, d), "tau_grid": (g,), "true_variance": (d,)}
        for name, shape in wanted.items():
            got: Array = getattr(self, name)
            if got.shape != shape or not np.isfinite(got).all():
                raise ValueError(f"client {self.name}: {name} has shape {got.shape}; wanted {shape}, finite")
        if min(d, g) < 1 or not (self.scale > 0).all() or not (self.tau2 > 0).all() or (np.diff(self.tau_grid) <= 0).any():
            raise ValueError(f"client {self.name}: wanted areas, scale > 0, tau2 > 0 and an increasing tau_grid")
        _check_areas(self)
        strange = set(self.parts) - set(SHARED) - set(OWN)
        if strange or any(part.ndim != 1 or not np.isfinite(part).all() for part in self.parts.values()):
            raise ValueError(f"client {self.name}: parts {', '.join(self.parts)}; wanted finite vectors of known parts")
        known = self.architecture.parts
        for name, part in self.parts.items():
            where = known[name if name in known else f"{name}[0]"].where
            if len(part) != where.stop - where.start:
                raise ValueError(f"client {self.name}: {name} has {len(part)} parameters; wanted {where.stop - where.start}")

    @property
    def d(self) -> int:
        """The number of the client's areas or locations."""
        return len(self.scale)

    @property
    def architecture(self) -> Architecture:
        """The architecture of this client's networks alone. `parts` are its parameters, but for the global encoder."""
        c = self.common
        if c.variant == "within":
            raise ValueError(f"client {self.name}: a prior that is exact inside each client has no networks")
        sizes = (c.n_global, (self.n_local,), c.hidden, c.local_hidden, c.width, c.rank)
        return Architecture(c.variant, (self.d,), 1, *sizes)


@dataclass(frozen=True, eq=False)
class WithinFile:
    """Holds one client's part of a prior that is exact inside it (`models.spatial.within`)."""

    common: Common  # the facts in all files
    # name, index: of the client, and its place among the clients
    name: str
    index: int
    within: Within  # its own map, and its ties to the others
    true_variance: Array  # (d,) of theta under the prior, phi averaged
    areas: tuple[str, ...] = ()  # names of the areas, in the order of theta
    # (d, p) of a Gaussian process, or the areas' centres where they are known, in the order of theta
    locations: Array | None = None
    # (k, 2) numbers of its own areas that are neighbours, each pair once, where it is known
    pairs: NDArray[np.int64] | None = None
    islands: tuple[str, ...] = ()  # names of its areas that the prior leaves out, as they have no neighbours
    digest: str = ""  # of the file that it was read from

    def __post_init__(self) -> None:
        if self.true_variance.shape != (self.d,) or not np.isfinite(self.true_variance).all():
            got = self.true_variance.shape
            raise ValueError(f"client {self.name}: true_variance has shape {got}; wanted {(self.d,)}, finite")
        if self.within.n_latents != self.common.n_global or self.within.condition != self.common.condition:
            raise ValueError(f"client {self.name}: wanted {self.common.n_global} latents and the condition of all files")
        _check_areas(self)

    @property
    def d(self) -> int:
        """The number of the client's areas or locations."""
        return self.within.size

    @property
    def n_local(self) -> int:
        """The number of its local latents: none."""
        return 0


OwnFile = ClientFile | WithinFile


def _check_areas(file: OwnFile) -> None:
    """Raises ValueError if names, locations and pairs of areas do not fit together."""
    places = file.d if file.locations is None else len(file.locations)
    if places != file.d or len(file.areas) not in (0, file.d) or (file.locations is None and not file.areas):
        raise ValueError(f"client {file.name}: wanted names or locations of {file.d} areas")
    if file.pairs is not None and (file.pairs.shape[1:] != (2,) or not ((0 <= file.pairs) & (file.pairs < file.d)).all()):
        raise ValueError(f"client {file.name}: wanted pairs of numbers of its {file.d} areas")
    if len(set(file.areas)) < len(file.areas):
        raise ValueError(f"client {file.name}: wanted different names of areas")


@dataclass(frozen=True, eq=False)
class ServerFile:
    """Holds the server's part of an artifact."""

    common: Common  # the facts in all files
    clients: tuple[str, ...]  # their names, in order
    sizes: tuple[int, ...]  # of each client, how many areas or locations it has
    n_local: tuple[int, ...]  # of each client, how many local latents
    digests: tuple[str, ...]  # of each client's file
    true_variance: tuple[Array, ...]  # of each client, the variances of theta under the prior, phi averaged
    # values of phi and the error of posterior means there, over that of independent areas; empty in files of trained priors of
    # before it was kept
    errors: tuple[tuple[float, float], ...] = ()
    mean_loadings: MeanLoadings | None = None  # of all areas on the global latents; None in files of before they were kept
    doubts: tuple[str, ...] = ()  # why no result on this map can stand
    by_position: bool = False  # whether its neighbours were given by the positions of areas in their table, and not by names
    digest: str = ""  # of the file that it was read from

    def __post_init__(self) -> None:
        lengths = {len(self.clients), len(self.sizes), len(self.n_local), len(self.digests), len(self.true_variance)}
        if lengths != {len(self.clients)} or [len(v) for v in self.true_variance] != list(self.sizes):
            raise ValueError("server file: wanted one size, digest and vector of variances for each client")
        if self.mean_loadings is not None and self.mean_loadings.values.shape[1] != self.common.n_global:
            raise ValueError(f"server file: mean loadings have shape {self.mean_loadings.values.shape}")


def write(
    folder: str | Path,
    common: Common,
    clients: Sequence[OwnFile],
    *,
    errors: Sequence[tuple[float, float]] = (),
    mean_loadings: MeanLoadings | None = None,
    doubts: Sequence[str] = (),
    by_position: bool = False,
    versions: Mapping[str, str] | None = None,
    put: Callable[[Path, bytes], None] | None = None,
) -> ServerFile:
    """Writes an artifact: the clients' files, the server's with their digests, and last the manifest.

    Parameters
    ----------
    folder : made if it is not there
    common : the facts in all files
    clients : in the order of their numbers
    errors : values of phi, and the error of posterior means there
    mean_loadings : of all areas, for the server
    doubts, by_position : see `ServerFile`
    versions : of the software that made it, for people to read
    put : writes a file at once or not at all; by default `put` of this module

    Returns
    -------
    the server's file

    Raises
    ------
    JobError
        A file cannot be written.
    """
    folder, put = Path(folder), put or _put
    names = [client.name for client in clients]
    if any(client.common != common or client.index != k for k, client in enumerate(clients)) or len(set(names)) < len(names):
        raise ValueError("artifact.write: wanted files of one artifact, numbered from 0, with different names")
    paths = [f"clients/{name}.npz" for name in safe_names(names)]
    contents = {path: _packed("client", client, common) for path, client in zip(paths, clients)}
    server = ServerFile(
        common,
        tuple(names),
        tuple(client.d for client in clients),
        tuple(client.n_local for client in clients),
        tuple(_digest(contents[path]) for path in paths),
        tuple(client.true_variance for client in clients),
        tuple(errors),
        mean_loadings,
        tuple(doubts),
        by_position,
    )
    contents["server.npz"] = _packed("server", server, common)
    manifest = {
        "format": FORMAT,
        "id": common.id,
        "kind": common.kind,
        "clients": dict(zip(names, paths)),
        "digests": {path: _digest(content) for path, content in contents.items()},
        "units": UNITS,
        "versions": dict(versions or {}),
    }
    # The manifest comes last: a folder without it is an artifact that was not finished.
    for path, content in contents.items():
        put(folder / path, content)
    put(folder / "manifest.json", json.dumps(manifest, indent=1).encode() + b"\n")
    return replace(server, digest=_digest(contents["server.npz"]))


def read_server(folder: str | Path) -> ServerFile:
    """Reads the server's file of an artifact.

    Parameters
    ----------
    folder : of the artifact, or the path of the file itself

    Raises
    ------
    JobError
        No such file, one that was altered, another format, or a client's file.
    """
    path, digest = _find(Path(folder), "server.npz")
    meta, arrays, digest = _unpacked(path, "server", digest)
    ends = np.cumsum([0, *meta["sizes"]])
    variances = tuple(arrays["true_variance"][a:b] for a, b in itertools.pairwise(ends))
    plain: dict[str, Any] = {name: tuple(meta[name]) for name in ("clients", "sizes", "n_local", "digests")}
    errors = tuple((float(phi), float(error)) for phi, error in meta.get("errors", ()))

    def made() -> ServerFile:
        given = "mean_loadings/phi" in arrays
        loadings = MeanLoadings(arrays["mean_loadings/phi"], arrays["mean_loadings/values"]) if given else None
        of_map: dict[str, Any] = {"doubts": tuple(meta.get("doubts", ())), "by_position": bool(meta.get("by_position"))}
        of_map |= {"true_variance": variances, "errors": errors, "mean_loadings": loadings}
        return ServerFile(_common(meta), **plain, **of_map, digest=digest)

    return _made(path, made)


def read_client(folder: str | Path, name: str, *, id: str | None = None) -> ClientFile:
    """Reads a client's own file of a prior that was trained. As `read_own`, but a prior that was built is refused as well."""
    file = read_own(folder, name, id=id)
    if isinstance(file, WithinFile):
        raise JobError(f"{folder}: this prior was built, and has no networks; train one with `fedkern sigma train`")
    return file


def read_own(folder: str | Path, name: str, *, id: str | None = None) -> OwnFile:
    """Reads a client's own file of an artifact.

    Parameters
    ----------
    folder : of the artifact, or the path of the file itself
    name : of the client: a file of another one is refused
    id : of the artifact that the job uses, where it is known: a file of another one is refused

    Raises
    ------
    JobError
        No such file, one that was altered, another format, another client's, or another artifact's.
    """
    folder = Path(folder)
    clients: Mapping[str, str] = {} if folder.is_file() else _manifest(folder)["clients"]
    if not folder.is_file() and name not in clients:
        raise JobError(
            f"{folder}: this prior was built or trained for {listed(list(clients), 8)}, not for a client {name!r}; name the "
            "client as in [data] client of the prior file, or make the prior anew"
        )
    path, digest = _find(folder, clients.get(name, ""))
    meta, arrays, digest = _unpacked(path, "client", digest)
    if meta["name"] != name:
        raise JobError(f"{path}: is the file of client {meta['name']!r}, not of {name!r}; give each client its own file")
    if id is not None and meta["common"]["id"] != id:
        raise JobError(
            f"{path}: belongs to prior {meta['common']['id'][:12]}, the job uses {id[:12]}; give client {name!r} the file "
            "that was made together with the server's"
        )
    if meta["common"]["variant"] == "within":
        return _made(path, lambda: _within_file(meta, arrays, digest))
    parts = {key.removeprefix("part/"): arrays[key] for key in arrays if key.startswith("part/")}
    values: dict[str, Any] = {key: arrays[key] for key in ("scale", "tau2", "tau_grid", "true_variance")}
    values |= {"index": meta["index"], "n_local": meta["n_local"], "areas": tuple(meta["areas"])}
    values |= {"pairs": arrays["pairs"].astype(np.int64) if "pairs" in arrays else None}
    values |= {"parts": parts, "locations": arrays.get("locations"), "islands": tuple(meta.get("islands", ())), "digest": digest}
    return _made(path, lambda: ClientFile(_common(meta), name, **values))


def _within_file(meta: Record, arrays: Mapping[str, Array], digest: str) -> WithinFile:
    """Returns a client's file as it was written."""
    values = {key.removeprefix("within/"): array for key, array in arrays.items() if key.startswith("within/")}
    common, d = _common(meta), len(values["diagonal"])
    data, row, column = (values.pop(f"T_{what}") for what in ("data", "row", "column"))
    T: Any = scipy.sparse.csr_array((data, (row.astype(np.int64), column.astype(np.int64))), shape=(d, d))
    border, rooted = values.pop("border").astype(np.int64), common.kind != "gp"
    within = Within(common.condition, border=border, T=T, rooted=rooted, **values)
    places, pairs = arrays.get("locations"), arrays["pairs"].astype(np.int64) if "pairs" in arrays else None
    areas, islands = tuple(meta["areas"]), tuple(meta.get("islands", ()))
    return WithinFile(common, meta["name"], meta["index"], within, arrays["true_variance"], areas, places, pairs, islands, digest)


def safe_names(names: Sequence[str]) -> list[str]:
    """Returns names of files for clients: letters, digits and . - _, with a number after those that would be equal."""
    safe = [re.sub(r"[^\w.-]", "_", name).lstrip(".") or "_" for name in names]
    count = Counter(safe)
    return [name if count[name] == 1 else f"{name}-{k}" for k, name in enumerate(safe)]


def _packed(role: str, file: OwnFile | ServerFile, common: Common) -> bytes:
    """Returns a file's bytes: the same for the same content."""
    arrays: dict[str, Array] = {}
    meta: dict[str, object] = {"format": FORMAT, "role": role, "units": UNITS, "common": asdict(common)}
    # Arrays go into the archive by name; all other fields into its JSON text.
    for entry in fields(file):
        value = getattr(file, entry.name)
        if entry.name == "parts":
            arrays |= {f"part/{name}": part for name, part in value.items()}
        elif isinstance(value, Within):
            arrays |= {f"within/{name}": array for name, array in _arrays_of(value).items()}
        elif isinstance(value, MeanLoadings):
            arrays |= {"mean_loadings/phi": value.phi, "mean_loadings/values": value.values}
        elif isinstance(value, np.ndarray):
            arrays[entry.name] = value
        elif entry.name == "true_variance":
            arrays[entry.name] = np.concatenate(value)
        elif entry.name in ("common", "digest", "locations", "pairs", "mean_loadings"):
            continue
        elif value or entry.name not in ("errors", "islands", "doubts", "by_position"):
            meta[entry.name] = value
    # Sorted keys and one type of numbers: the digest must not depend on the machine.
    text = np.frombuffer(json.dumps(meta, sort_keys=True).encode(), dtype=np.uint8)
    stream = io.BytesIO()
    np.savez(stream, allow_pickle=False, meta=text, **{name: np.asarray(a, dtype="<f8") for name, a in arrays.items()})
    return stream.getvalue()


def _arrays_of(within: Within) -> dict[str, Array]:
    """Returns the arrays of a client's map, all but the condition, which every file has."""
    T = scipy.sparse.coo_array(within.T)
    arrays = {name: getattr(within, name) for name in ("nodes", "border", "diagonal", "spectrum", "U", "K", "W")}
    return arrays | {"T_data": T.data, "T_row": T.coords[0], "T_column": T.coords[1]}


def _unpacked(path: Path, role: str, digest: str | None) -> tuple[dict[str, Any], dict[str, Array], str]:
    """Returns the JSON text, the arrays and the digest of a file, after a check of its bytes against the manifest."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise JobError(f"{path}: cannot be read ({error.strerror}); copy it from {MADE}") from None
    # The digest is compared before anything is parsed.
    actual = _digest(content)
    if digest is not None and digest != actual:
        raise JobError(
            f"{path}: was altered or belongs to another prior: its digest is {actual[:12]}, the manifest's {digest[:12]}; "
            f"copy the file again from {MADE}"
        )
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        meta: dict[str, object] = json.loads(arrays.pop("meta").tobytes())
        kind = (meta["format"], meta["role"])
    except (ValueError, KeyError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise JobError(f"{path}: is no file of a prior artifact, or was cut short ({error}); copy it again") from None
    if kind[0] != FORMAT:
        raise JobError(f"{path}: has format {kind[0]}, this version of fedkern reads {FORMAT}; make the prior anew")
    if kind[1] != role:
        raise JobError(f"{path}: is a file for the {kind[1]}, wanted one for the {role}; give each party its own file")
    return meta, {name: np.asarray(a, dtype=np.float64) for name, a in arrays.items()}, actual


def _made(path: Path, make: Callable[[], Made]) -> Made:
    """Makes a dataclass of a file's content; raises JobError if the content does not fit together."""
    try:
        return make()
    except (ValueError, TypeError, KeyError) as error:
        raise JobError(f"{path}: its content does not fit together ({error}); copy the file again") from None


def _common(meta: Record) -> Common:
    given = dict(meta["common"])
    condition = dict(given.pop("condition"))
    hyperprior = Hyperprior(**condition.pop("hyperprior"))
    return Common(condition=Condition(hyperprior=hyperprior, **condition), **given)


def _find(folder: Path, name: str) -> tuple[Path, str | None]:
    """Returns the path of a file and its digest in the manifest; a path of a single file has no manifest."""
    if folder.is_file():
        return folder, None
    return folder / name, str(_manifest(folder)["digests"].get(name, "absent"))


def _manifest(folder: Path) -> dict[str, Any]:
    path = folder / "manifest.json"
    try:
        manifest: dict[str, object] = json.loads(path.read_text("utf-8"))
        good = manifest["format"] == FORMAT and isinstance(manifest["clients"], dict) and isinstance(manifest["digests"], dict)
    except OSError:
        raise JobError(
            f"{folder}: holds no prior artifact (no manifest.json); give the --out of a finished "
            "`fedkern sigma build` or `train`, or a file of it"
        ) from None
    except (ValueError, KeyError, TypeError):
        good = False
    if not good:
        raise JobError(
            f"{path}: is no manifest of format {FORMAT}; copy it again, or make the prior with this version of fedkern"
        )
    return manifest


def _digest(content: bytes) -> str:
    return blake2b(content, digest_size=32).hexdigest()


def _put(path: Path, content: bytes) -> None:
    """Writes a file so that it is the old one or the new one, whatever happens in between."""
    try:
        with Ground(path.parent) as folder:
            folder.put(path, content, sync=False)
    except OSError as error:
        raise JobError(
            f"cannot write {path}: {error.strerror or error}; free some space there or choose another folder"
        ) from None
