"""A small job of every method, on the files of two clients."""

from __future__ import annotations

from pathlib import Path

HEAD = '[job]\nrounds = 2\n[data]\nclients = ["data/a.csv", "data/b.csv"]\nresponse = "y"\n'
COLUMNS = "[data.columns]\nx = {center = 0, scale = 1}\n"
TERMS = "[privacy]\nepsilon = 8.0\ndelta = 1e-3\nclip = 2.5\nnoise_multiplier = 3.0\n"
SPARSE = HEAD.replace("[job]\n", '[job]\nmethod = "sparse"\n').replace("rounds = 2", "rounds = 20")
VERTICAL = (
    '[job]\nmethod = "vertical"\nrounds = 2\n[data]\nclients = ["data/a.csv", "data/b.csv"]\nid = "id"\nresponse = "r"\n'
    'server = "server.csv"\n'
)
SIGMA = (
    '[job]\nmethod = "sigma"\n[data]\nclients = ["data/a.csv", "data/b.csv"]\narea = "id"\nresponse = "y"\n[model]\nprior = "p"\n'
)
JOBS = {
    "pvi, open": HEAD,
    "pvi, private": HEAD + COLUMNS + "[algorithm]\nlocal_steps = 3\n" + TERMS + "sampling_rate = 0.2\n",
    "pvi, client-level": HEAD + COLUMNS + TERMS + 'unit = "client"\n',
    "sparse": SPARSE,
    "vertical, open": VERTICAL,
    "vertical, private": VERTICAL
    + COLUMNS
    + '[algorithm]\nauxiliary = "mean-field"\n[privacy]\nepsilon = 8.0\ndelta = 1e-3\nnoise_multiplier = 60.0\n',
    "sigma": SIGMA,
}


class TwoClients:
    """Clients a and b with their files, the server's, and a job."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "data").mkdir()
        self.files(["x", "y"])

    def files(self, names: list[str]) -> None:
        for shift, name in enumerate("ab"):
            rows = [f"{i},{(i * 7 + shift) % 5 - 2},{(i + shift) % 2}" for i in range(40)]
            (self.root / "data" / f"{name}.csv").write_text("\n".join([",".join(["id", *names]), *rows]) + "\n")

    def job(self, kind: str) -> Path:
        text = JOBS[kind]
        if "vertical" in kind:
            for name in "ab":
                rows = [f"{i},{(i * 7) % 5 - 2}" for i in range(40)]
                column = "x" if "private" in kind else f"x{name}"
                (self.root / "data" / f"{name}.csv").write_text("\n".join([f"id,{column}", *rows]) + "\n")
            text = text.replace('"r"', '"y"')
            (self.root / "server.csv").write_text("\n".join(["id,y", *(f"{i},{i % 2}" for i in range(40))]) + "\n")
        elif kind != "sigma":
            self.files(["x", "y"])
            text = text.replace('response = "y"', 'response = "y"\nignore = ["id"]')
        path = self.root / "job.toml"
        path.write_text(text)
        return path
