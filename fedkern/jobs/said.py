"""Defines the lines of `fedkern check` that its short form says, too."""

from __future__ import annotations


class Line(str):
    """Is a line that begins with its word.

    Attributes
    ----------
    word, text : which kind of line it is, and what it says
    more : what the line below it says; "" where that is another

    Examples
    --------
    >>> from fedkern.jobs.said import Line
    >>> line = Line("memory", "about 2 GB", "more than this machine has")
    >>> print(line, "-", line.more)
    memory   about 2 GB - more than this machine has
    """

    __slots__ = ("more", "text", "word")
    word: str
    text: str
    more: str

    def __new__(cls, word: str, text: str, more: str = "") -> Line:
        line = super().__new__(cls, f"{word:<9}{text}")
        line.word, line.text, line.more = word, text, more
        return line

    def __reduce__(self) -> tuple[type[Line], tuple[str, str, str]]:
        return Line, (self.word, self.text, self.more)
