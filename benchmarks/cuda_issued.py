"""What a warp issues in a kernel's main loop, from nvdisasm's text: all blocks of the loop, the longest way through them, and the
lines of source that an instruction comes from.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

Place = tuple[str, int]  # file and line


class Instruction(NamedTuple):
    """One line of machine code.

    Attributes
    ----------
    at : innermost first, the places it comes from: each was inlined at the next
    """

    operation: str
    text: str
    at: tuple[Place, ...]

    @property
    def conditional(self) -> bool:
        return bool(re.match(r"@", self.text) or re.search(r"BRA(\.DIV|\.CONV)?[\w.]*\s+!?U?[PR]\w+\s*,", self.text))

    @property
    def targets(self) -> list[str]:
        return re.findall(r"\(?(\.L_x_\d+)\)?", self.text)

    @property
    def routine(self) -> str | None:
        """What it calls."""
        called = re.search(r"`\((\$?[\w$]+)\)", self.text) if self.operation.startswith("CALL") else None
        return called[1] if called else None


class Block(NamedTuple):
    """Instructions between labels and jumps, and the numbers of the blocks that may follow."""

    code: list[Instruction]
    then: list[int]


class Code(NamedTuple):
    """A kernel, and the routines that it calls."""

    blocks: list[Block]
    routines: dict[str, int]


def read(text: str) -> Code:
    """The section of a kernel, disassembled with `-gi`."""
    labels, starts, lines, at = dict[str, int](), {0}, list[Instruction](), list[Place]()
    for line in text.splitlines():
        if named := re.match(r"([.$\w]+):\s*$", line):
            labels[named[1]] = len(lines)
            starts.add(len(lines))
        elif place := re.match(r'\s*//## File "([^"]+)", line (\d+)(?: inlined at "([^"]+)", line (\d+))?', line):
            # Places follow each other from the innermost on; what is not inlined further ends them.
            own = (place[1], int(place[2]))
            at = [*at, own] if at and at[-1] == ("", 0) else [own]
            if place[3]:
                at.append(("", 0))
        elif found := re.match(r"\s+/\*[0-9a-f]{4,}\*/\s+((?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*).*?);?\s*(?:/\*.*)?$", line):
            lines.append(Instruction(found[2], found[1], tuple(one for one in at if one[0])))
            if re.match(r"BRA|BRX|RET|EXIT|CALL", found[2]):
                starts.add(len(lines))
    met = {one.targets[0] for one in lines if one.operation == "BSSY"}
    for k, one in enumerate(lines):
        assert one.operation != "BSYNC" or any(labels[name] == k + 1 for name in met), "lanes meet elsewhere"
    order = sorted(start for start in starts if start < len(lines))
    number = {start: k for k, start in enumerate(order)}
    blocks = []
    for k, start in enumerate(order):
        code = lines[start : order[k + 1] if k + 1 < len(order) else len(lines)]
        last = code[-1]
        then = [k + 1] if k + 1 < len(order) else []
        if re.match(r"BRA|BRX", last.operation):
            aimed = [number[labels[name]] for name in last.targets]
            then = aimed + (then if last.conditional else [])
        elif re.match(r"RET|EXIT", last.operation) and not last.conditional:
            then = []
        if last.operation == "BRA.DIV":  # for lanes that have parted: all of ours are together
            then = then[1:]
        blocks.append(Block(code, then))
    return Code(blocks, {name: number[start] for name, start in labels.items() if name.startswith("$") and start < len(lines)})


def components(graph: Mapping[int, Sequence[int]]) -> list[set[int]]:
    """Strongly connected ones (Tarjan), those that are reached last first."""
    index, low, stack, found = dict[int, int](), dict[int, int](), list[int](), list[set[int]]()

    def visit(v: int) -> None:
        index[v] = low[v] = len(index)
        stack.append(v)
        for w in graph[v]:
            if w not in index:
                visit(w)
                low[v] = min(low[v], low[w])
            elif w in stack:
                low[v] = min(low[v], index[w])
        if low[v] == index[v]:
            at = stack.index(v)
            found.append(set(stack[at:]))
            del stack[at:]

    for v in graph:
        if v not in index:
            visit(v)
    return found


Way = tuple[Instruction, ...]


class Loop:
    """The largest loop of a kernel.

    Parameters
    ----------
    code
        The kernel.
    rare
        Routines that are called for operands out of the common range.
    left_out
        Lines of loops inside it that the longest way goes round; it can't go through others.
    """

    def __init__(self, code: Code, rare: str, left_out: str) -> None:
        self._code, self._rare, self._left_out = code, rare, left_out
        graph = {k: code.blocks[k].then for k in self._from(0)}
        loops = [part for part in components(graph) if len(part) > 1 or next(iter(part)) in graph[next(iter(part))]]
        self.body = max(loops, key=lambda part: sum(len(code.blocks[k].code) for k in part))
        self._entry = self._entered(self.body, graph)

    def _from(self, first: int) -> set[int]:
        found, todo = set[int](), [first]
        while todo:
            k = todo.pop()
            if k not in found:
                found.add(k)
                todo += self._code.blocks[k].then
        return found

    @staticmethod
    def _entered(part: set[int], graph: Mapping[int, Sequence[int]]) -> int:
        """The block by which a loop is entered."""
        outside = {n for k, then in graph.items() if k not in part for n in then} & part
        assert len(outside) == 1, f"a loop with {len(outside)} entries"
        return outside.pop()

    def whole(self) -> Way:
        """Every block once, routines each time they are called."""
        return self._all(self.body)

    def _all(self, part: set[int]) -> Way:
        way: Way = ()
        for k in sorted(part):
            way += tuple(self._code.blocks[k].code)
            if routine := self._code.blocks[k].code[-1].routine:
                way += self._all(self._from(self._code.routines[routine]))
        return way

    def longest(self) -> Way:
        """The longest way through the loop that calls no rare routine."""
        return self._longest(self.body, self._entry, ends={k for k in self.body if self._entry in self._code.blocks[k].then})

    def _is_rare(self, k: int) -> bool:
        routine = self._code.blocks[k].code[-1].routine
        return bool(routine and re.search(self._rare, routine))

    def _longest(self, part: set[int], first: int, ends: set[int]) -> Way:
        """From `first` to one of `ends`, without coming back to `first`."""
        inside = {k for k in part if not self._is_rare(k)}
        graph = {k: [n for n in self._code.blocks[k].then if n in inside and n != first] for k in inside}
        best: dict[int, Way | None] = {}
        for loop in components(graph):  # what is reached last comes first
            k = next(iter(loop))
            if len(loop) > 1 or k in graph[k]:
                self._go_round(loop)
                best |= dict.fromkeys(loop)
                continue
            ways = [way for n in graph[k] if (way := best[n]) is not None] + ([()] if k in ends else [])
            best[k] = self._step(k) + max(ways, key=len) if ways else None
        found = best[first]
        assert found is not None, "no way through"
        return found

    def _go_round(self, loop: set[int]) -> None:
        lines = {source(place) for k in loop for one in self._code.blocks[k].code for place in one.at}
        if not any(re.search(self._left_out, line) for line in lines):
            raise ValueError(f"a loop inside the main loop, passed nobody knows how often: {sorted(lines)}")

    def _step(self, k: int) -> Way:
        """A block, with the routine that it calls."""
        way, routine = tuple(self._code.blocks[k].code), self._code.blocks[k].code[-1].routine
        if routine:
            entry = self._code.routines[routine]
            reached = self._from(entry)
            ends = {n for n in reached if self._code.blocks[n].code[-1].operation.startswith("RET")}
            way += self._longest(reached, entry, ends)
        return way


@cache
def _lines(file: str) -> list[str]:
    path = Path(file)
    return path.read_text().splitlines() if path.is_file() else []


@cache
def function(place: Place) -> str:
    """The name of the function that has this line."""
    for line in reversed(_lines(place[0])[: place[1]]):
        if named := re.search(r"FEDKERN_(?:INLINE|DEVICE|KERNEL|CALLED)\b.*?([\w\[\]]+)\(", line):
            return named[1]
    return ""


def source(place: Place) -> str:
    """The line itself."""
    lines = _lines(place[0])
    return lines[place[1] - 1].strip() if place[1] <= len(lines) else ""


def count(way: Way, pattern: str) -> int:
    """Instructions whose operation begins so."""
    return sum(bool(re.match(pattern, one.operation)) for one in way)


def parts(way: Way, rules: Mapping[str, str]) -> dict[str, int]:
    """How many instructions each part has: the first whose rule fits to a function that an instruction comes from, or to its
    line in a .cu file. An empty rule fits to all.
    """
    counts = dict.fromkeys(rules, 0)
    for one in way:
        names = [*map(function, one.at), *(source(place) for place in one.at if place[0].endswith(".cu"))]
        counts[next(part for part, rule in rules.items() if not rule or any(re.search(rule, name) for name in names))] += 1
    return counts
