"""Checks a file before it is read as a table: that it exists and ends, is UTF-8 text, and has the separator of its type.

Programs of many countries write csv files with semicolons, in Latin-1 or in UTF-16. Read as something else they would not fail:
letters that UTF-8 lacks would all become one, and levels that differ in them alone would be one level. A fault of a whole file is
an error whose public text has nothing that stands in the file; a fault of one line spoils that line alone.
"""

from __future__ import annotations

import json
import os
import re
import stat
import unicodedata
from pathlib import Path

from ..errors import JobError, OwnFault

NOT_UTF8 = (
    "has bytes that are not UTF-8; if the file is Latin-1 (or Windows-1252), save it as UTF-8, or set [data.dialect] "
    'encoding = "latin-1" (or "cp1252")'
)
LOST = (
    "has the character U+FFFD, which stands for letters that were lost; export the file anew, or correct [data.dialect] encoding"
)
ZERO = 'has zero bytes; if the file is UTF-16, save it as UTF-8, or set [data.dialect] encoding = "utf-16"'
UTF16 = (b"\xff\xfe", b"\xfe\xff")  # UTF-32, too, begins with one of them, or with zeros
SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
_ESCAPED = re.compile("[\udc80-\udcff]")  # what "surrogateescape" makes of a byte that is not UTF-8
_INVISIBLE = "\ufeff\u200b\u2060"  # byte-order marks of files that were joined, and blanks without a width


def is_there(path: Path) -> bool:
    """Tells whether a file or a folder exists. Raises JobError: it cannot be looked at or read, or it is a pipe or a device,
    which may never end."""
    try:
        mode = os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return False
    except ValueError:
        raise JobError(f"{str(path)!r} is no path") from None
    except OSError as error:
        raise JobError(f"{path}: cannot be read ({error.strerror}); correct the path, or make it readable") from None
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise JobError(f"{path}: is a pipe or a device, not a file; write its content to a file first")
    if not os.access(path, os.R_OK):
        raise JobError(f"{path}: cannot be read (Permission denied); make it readable for this user")
    return True


def check_header(path: Path, line: bytes, separator: str) -> None:
    """Refuses a text file whose first line is not UTF-8, or whose cells are not separated as the file's name says. Raises
    JobError: it is not; the text names the remedy."""
    if line.startswith(UTF16) or b"\0" in line:
        remedy = 'save it as UTF-8 (in a spreadsheet: CSV UTF-8), or set [data.dialect] encoding = "utf-16"'
        raise _of_header(path, f"is UTF-16 or no text at all; {remedy}", line)
    try:
        text = line.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise _of_header(path, f"the header {NOT_UTF8}", line) from None
    if "\ufffd" in text:
        raise _of_header(path, f"the header {LOST}", line)
    # Separators within quotes are part of a name.
    outside = re.sub('"[^"]*"', "", text)
    if separator in outside:
        return
    other = max(SEPARATORS, key=outside.count)
    if outside.count(other):
        between = SEPARATORS.get(separator, repr(separator))
        remedy = f"set [data.dialect] delimiter = {json.dumps(other)}"
        remedy += {";": ' (and decimal = "," if its numbers have commas)', "\t": " (or name it .tsv)"}.get(other, "")
        remedy = "name it .csv, or " + remedy if (other, separator) == (",", "\t") else remedy
        remedy += f", or save it with {between} between its cells"
        raise _of_header(path, f"its cells are separated by {SEPARATORS[other]}; {remedy}", line)


def _of_header(path: Path, what: str, line: bytes) -> OwnFault:
    return OwnFault(f"{path.name}: {what}", f"{path}: {what}; it begins with {str(line[:60])[1:]}")


def decoded(body: bytes) -> str:
    """Returns the lines after the header. Bytes that are not UTF-8 are kept apart, so that `fault` finds their lines."""
    return body.decode("utf-8", errors="surrogateescape")


def fault(line: str) -> str | None:
    """Returns the fault of the characters of one line, or None."""
    if "\0" in line:
        return ZERO
    if "\ufffd" in line:
        return LOST
    return NOT_UTF8 if not line.isascii() and _ESCAPED.search(line) else None


def public_reason(reason: str) -> str:
    """Returns why a line of an open job's file cannot be read, as every party may hear it: a library's words may quote the
    line."""
    return next((what for what in (NOT_UTF8, ZERO, LOST) if what in reason), "cannot be read")


def canonical(text: str) -> str:
    """Returns a cell or a name in the one way in which it is compared.

    Blanks at its ends are gone; letters that Unicode can write in two ways (an umlaut as one character, or as a letter and two
    dots) are written in one (NFC); characters that no text can hold (half of a surrogate pair) are written out, so that no two
    become one.
    """
    if text.isascii():
        return text.strip()
    text = text.encode("utf-8", errors="backslashreplace").decode()
    return unicodedata.normalize("NFC", text).strip().strip(_INVISIBLE).strip()
