"""Texts as a terminal, a page or a figure may show them: names come from files, and may hold anything."""

from __future__ import annotations

from unicodedata import category

# Control characters, marks that turn or hide what stands beside them, line ends, and halves of characters.
UNSEEN = frozenset({"Cc", "Cf", "Zl", "Zp", "Cs"})
JOINERS = "\u200c\u200d"  # without which some scripts cannot be written


def printable(text: str, keep: str = "") -> str:
    """The text with what cannot be seen as an escape such as `\\x1b` or `\\u202e`; `keep`: characters that stay, such as line
    ends of a text that has several lines."""
    if text.isprintable():
        return text
    stays = JOINERS + keep
    return "".join(
        character.encode("unicode_escape").decode() if character not in stays and category(character) in UNSEEN else character
        for character in text
    )


def several(text: str) -> str:
    """The same for a text of several lines."""
    return printable(text, keep="\n")
