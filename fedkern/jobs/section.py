"""What every table of a job file is made of."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

Finite = Annotated[float, Field(allow_inf_nan=False)]
LARGEST = 1e50  # of a scale, a rate or a precision: beyond, products of them are no numbers
Positive = Annotated[float, Field(gt=0, le=LARGEST, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]


def key(default: Any = ..., *, help: str, remedy: str = "", **limits: Any) -> Any:
    """A key of the job file: its default, what it is, what to do when it is wrong, and its limits (gt, ge, lt, le)."""
    return Field(default, description=help, json_schema_extra={"remedy": remedy}, **limits)


class Section(BaseModel):
    """A table of the job file. Unknown keys are errors, and no value is converted except a whole number to a real one."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, protected_namespaces=())


class CommonOutputSection(Section):
    """What every method's [output] has."""

    client_folder: str | None = key(
        None, help="where a client's own folder lies, on its machine; by default in the run's", min_length=1
    )

    def own_folders(self, folder: Path) -> Path | None:
        """Where the clients' own folders lie, if not in the run's; relative to `folder`."""
        return None if self.client_folder is None else folder / os.path.expanduser(self.client_folder)
