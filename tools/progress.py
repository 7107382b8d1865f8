"""Runs commands side by side, and says at least every few seconds how far they are: for `make demo` and `make install`.

python tools/progress.py [--show] FILE NAME COMMAND .. [+ NAME COMMAND ..]

On a terminal it is one line that changes, elsewhere a new line each time: the seconds, and the last line that each command
printed, at first the command itself. With `--show` all that they print is passed on, and a line with the seconds comes where they
are silent. What a command says on its standard error is seen, and its standard output if it fails. After Ctrl-C both are left
out, and one line says that you stopped it; with `--show` a command says that itself. FILE gets a line for each command that
succeeded, its name and seconds, and goes when one fails: `make` adds up one run. The exit code is that of the first command that
failed.
"""

import os
import queue
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from pathlib import Path
from types import FrameType
from typing import IO

PAUSE = float(os.environ.get("FEDKERN_PROGRESS_SECONDS", "3"))  # between two lines
KEPT = 200  # of a command's lines, for when it fails
Event = tuple["Command", str | None, bool]  # a line, or None at the end; whether it is of the standard error


class Command:
    """A running command, with the lines that it has printed."""

    def __init__(self, name: str, words: list[str], events: "queue.Queue[Event]", show: bool) -> None:
        self.name, self.lines, self.began = name, deque([shlex.join([Path(words[0]).name, *words[1:]])], KEPT), time.monotonic()
        # A job that is shown asks whether its standard error is a terminal.
        errors = None if show else subprocess.PIPE
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=errors, text=True, errors="replace")
        threading.Thread(target=self._read, args=(events,), daemon=True).start()

    def _read(self, events: "queue.Queue[Event]") -> None:
        def pass_on(pipe: IO[str], is_error: bool) -> None:
            for line in pipe:
                events.put((self, line.rstrip(), is_error))

        errors = None
        if self.process.stderr is not None:
            errors = threading.Thread(target=pass_on, args=(self.process.stderr, True), daemon=True)
            errors.start()
        assert self.process.stdout is not None
        pass_on(self.process.stdout, False)
        self.process.wait()
        if errors is not None:
            errors.join(1)  # something that the command has left behind may hold it open
        events.put((self, None, False))

    def status(self, show: bool) -> str:
        """Returns its name, and the last line that it printed, at first its words, unless that line was shown."""
        return self.name if show else f"{self.name}: {self.lines[-1].strip()}"


class Said:
    """Writes lines, and on a terminal the line that changes below them."""

    def __init__(self) -> None:
        self.is_terminal, self.last, self.has_status = sys.stdout.isatty(), time.monotonic(), False

    def line(self, text: str, is_error: bool = False) -> None:
        """Writes a line that stays."""
        self.clear()
        print(text, flush=True, file=sys.stderr if is_error else sys.stdout)
        self.last = time.monotonic()

    def status(self, seconds: float, statuses: list[str]) -> None:
        """Writes how far the commands are, with as much room for each."""
        columns = shutil.get_terminal_size().columns - 9 if self.is_terminal else 150
        room = columns // len(statuses) - 2
        shown = [text if len(text) <= room else text[: room - 3] + "..." for text in statuses]
        text = f"  {seconds:.0f} s, {'; '.join(shown)}"
        print(f"\r{text}\033[K" if self.is_terminal else text, end="" if self.is_terminal else "\n", flush=True)
        self.has_status, self.last = self.is_terminal, time.monotonic()

    def clear(self) -> None:
        """Takes the changing line away."""
        if self.has_status:
            print("\r\033[K", end="", flush=True)
        self.has_status = False


def run(commands: list[tuple[str, list[str]]], file: Path, show: bool) -> int:
    """Runs all commands to their end and returns the first failure's exit code, or 0."""
    events: queue.Queue[Event] = queue.Queue()
    running: list[Command] = []
    asked: list[int] = []
    interrupts: list[int] = []

    def end(number: int, frame: FrameType | None = None) -> None:
        asked.append(number)
        for command in running:
            command.process.terminate()

    # A terminal interrupts the commands themselves: this process stays until they have said their last words.
    signal.signal(signal.SIGINT, lambda number, frame: interrupts.append(number))
    signal.signal(signal.SIGTERM, end)
    for name, words in commands:
        running.append(Command(name, words, events, show))
    if asked:  # before all of them were known
        end(asked[0])
    said, began, code = Said(), time.monotonic(), 0
    if not show:
        said.status(0, [command.status(show) for command in running])
    pause = 0.5 if said.is_terminal and not show else PAUSE
    while running:
        try:
            command, line, is_error = events.get(timeout=max(0.0, said.last + pause - time.monotonic()))
        except queue.Empty:
            said.status(time.monotonic() - began, [command.status(show) for command in running])
            continue
        if line is not None:
            if is_error and not interrupts:
                said.line(line, is_error=True)
            elif not is_error:
                command.lines.append(line)
                if show:
                    said.line(line)
            continue
        running.remove(command)
        failed = command.process.returncode
        seconds = time.monotonic() - command.began
        if not failed:
            with file.open("a") as times:
                times.write(f"{command.name} {seconds:.0f}\n")
            continue
        code = code or (failed if failed > 0 else 128 - failed)
        if interrupts:
            continue
        for line in () if show else list(command.lines):
            said.line(line)
        said.line(f"{command.name} failed after {seconds:.0f} s")
    said.clear()
    if interrupts and code and not show:
        said.line(f"stopped by Ctrl-C after {time.monotonic() - began:.0f} s; start it again")
    if code:
        file.unlink(missing_ok=True)
    return code


def commands_of(words: list[str]) -> list[tuple[str, list[str]]]:
    """Returns the name and the words of each command."""
    commands: list[tuple[str, list[str]]] = []
    while words:
        end = words.index("+") if "+" in words else len(words)
        commands.append((words[0], words[1:end]))
        words = words[end + 1 :]
    return commands


if __name__ == "__main__":
    arguments = sys.argv[1:]
    if show := arguments[0] == "--show":
        arguments = arguments[1:]
    sys.exit(run(commands_of(arguments[1:]), Path(arguments[0]), show))
