"""Keeps the answers of asynchronous clients in the order in which the server took them: all that a run's posterior follows from.

`answers.jsonl` lies with the server. Its first line has what the parties had agreed on before the rounds; then each answer is a
line, as it came over the wire, and so is each loss of a client and each start of the run. Every line ends with a digest of all
lines so far, and summary.json has the last: a line that was altered, removed or put in is named.
"""

from __future__ import annotations

import hashlib
import json
from base64 import b64decode, b64encode
from collections.abc import Iterator
from pathlib import Path

from ..errors import JobError
from ..ground import Ground
from ..results.plain import Record
from .files import Lines
from .opened import Opened

FILE = "answers.jsonl"
SIZE = 8  # bytes of a line's digest


class Answers:
    """Writes the file of a run.

    Parameters
    ----------
    size : bytes at the checkpoint from which a run goes on; what was written after it is done again. 0 begins anew
    """

    def __init__(self, path: Path, ground: Ground, size: int) -> None:
        self._lines, self._mark, self.number = Lines(path, ground), b"", 0
        self._lines.cut(size)
        for self.number, (_, self._mark) in enumerate(_checked(path), 1):
            pass

    def append(self, record: Record) -> None:
        """Writes a line."""
        text = json.dumps(record)
        self._mark, self.number = marked(self._mark, text), self.number + 1
        self._lines.append({"of": text, "mark": self._mark.hex()})

    def frame(self, client: str, frame: bytes) -> None:
        """Writes an answer."""
        self.append({"client": client, "frame": b64encode(frame).decode()})

    @property
    def size(self) -> int:
        """The number of bytes so far."""
        return self._lines.size

    @property
    def content(self) -> Record:
        """The entry of summary.json, by which a reader sees that no line is missing."""
        return {"lines": self.number, "mark": self._mark.hex()}

    def close(self) -> None:
        """Closes the file."""
        self._lines.close()


def marked(before: bytes, text: str) -> bytes:
    """Returns the digest of a line after those with the digest `before`."""
    return hashlib.blake2b(before + text.encode(), digest_size=SIZE).digest()


def read(path: Path, whole: Record | None = None) -> Iterator[Record]:
    """Yields the lines of a file; the bytes of an answer are `frame`.

    `whole`: the entry of summary.json (`of_summary`). Raises JobError: a line is not as it was written, or lines are missing.
    """
    last, number = b"", 0
    for record, mark in _checked(path):
        last, number = mark, number + 1
        yield record
    if whole is not None and (number, last.hex()) != (whole["lines"], whole["mark"]):
        raise JobError(f"{path}: ends after line {number}, and the run wrote {whole['lines']}")


def of_summary(run: Opened) -> Record:
    """Returns the entry of a run's summary.json (JobError: the run has not ended, or has kept no answers)."""
    if run.summary is None or "answers" not in run.summary:
        raise JobError(f'{run.path}: replay wants a finished run with algorithm.schedule = "asynchronous"')
    return dict(run.summary["answers"])


def _checked(path: Path) -> Iterator[tuple[Record, bytes]]:
    """Yields each line with the digest of all lines so far, which it must have."""
    mark = b""
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise JobError(f"{path}: cannot be read ({error.strerror}); put it back as the run left it") from None
    for number, line in enumerate(lines, 1):
        try:
            line_record = json.loads(line)
            mark, record = marked(mark, line_record["of"]), json.loads(line_record["of"])
            if mark.hex() != line_record["mark"]:
                raise ValueError
            record |= {"frame": b64decode(record["frame"])} if "frame" in record else {}
        except (ValueError, KeyError, TypeError):
            raise JobError(f"{path}: line {number} is not as the run wrote it, or one before it is missing") from None
        yield record, mark
