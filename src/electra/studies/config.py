"""Configuration of a study and its file study.json."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from pydantic import Field, FiniteFloat
from typing_extensions import TypedDict

from electra.config.checks import check_choice, check_range
from electra.errors import DeviceError, RunError, UsageError
from electra.runtime.setup import RuntimeConfig
from electra.schema import read_json
from electra.storage import holds_files, write_atomically
from electra.studies.catalog import STUDIES
from electra.studies.scales import SCALES
from electra.studies.study import Published, Study
from electra.text.corpus import make_absolute

STUDY = "study.json"
TRIALS = "trials"
"""Folder of the records of trials."""


class StudyRecord(TypedDict):
    """The key of study.json that is used; the others are compared with the configuration."""

    budget: Annotated[FiniteFloat, Field(gt=0)]


@dataclass(frozen=True)
class StudyConfig:
    """Options of `electra.study`; see its documentation."""

    name: str
    data: str
    glue: str
    out: Path
    scale: str
    seeds: int
    hours: float | None
    tasks: tuple[str, ...]
    variants: tuple[str, ...]
    finetune_seeds: int
    workers: int
    rates: Mapping[str, float] = field(default_factory=dict)
    tags: str | None = None
    minimal_pairs: tuple[str, ...] = ()
    device: Literal["auto", "cpu", "cuda"] = "auto"
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    share: float = 1.0

    def __post_init__(self) -> None:
        check_choice("NAME", self.name, STUDIES)
        check_choice("--scale", self.scale, SCALES)
        check_range(self, "", "seeds", "workers", at_least=1, at_most=10**4)
        check_range(self, "", "finetune_seeds", at_least=0, at_most=10**4)
        check_range(self, "", "hours", above=0, at_most=10**6)
        check_range(self, "", "share", above=0, at_most=10**6)
        if self.hours is not None and self.share != 1:
            raise UsageError("conflicting-options", "--hours and --share both set the budget; leave one of them out")
        if self.device == "cuda" and not torch.cuda.is_available():
            raise DeviceError("no-gpu", "--device is cuda, but PyTorch finds no GPU; use auto or cpu")

    @cached_property  # because timing a step changes the number of threads of this process to that of a trial
    def runtime(self) -> RuntimeConfig:
        """Device, precision and threads of a trial: trials that run at the same time share the cores."""
        threads = None if self.workers == 1 else max(1, torch.get_num_threads() // self.workers)
        return RuntimeConfig(self.device, self.precision, threads)


def build_study_record(config: StudyConfig, study: Study) -> dict[str, Any]:
    """Build the content of study.json: everything that the results depend on."""
    return {
        "study": config.name,
        "scale": config.scale,
        "data": make_absolute(config.data),
        "glue": make_absolute(config.glue),
        "rates": dict(config.rates),
        "equal": study.equal,
        "budget": study.budget,
        "hours": config.hours,
        "share": config.share,
    }


def save_study(config: StudyConfig, study: Study) -> None:
    """Write study.json."""
    write_atomically(config.out / STUDY, (json.dumps(build_study_record(config, study), indent=2) + "\n").encode())


def load_budget(config: StudyConfig) -> float | None:
    """Load the budget of the study in `out`; None for a new or empty directory.

    Raises:
        RunError: the directory has another study or other files.
    """
    path = config.out / STUDY
    if not path.exists():
        # Records of the study's trials from another machine may be there before its first run.
        if holds_files(config.out, besides=TRIALS) or config.out.is_file():
            raise RunError("not-study", f"{config.out}: not empty and not a study; choose another --out")
        return None
    saved = read_json(path, StudyRecord, RunError)
    now = build_study_record(config, Study("", "", (), Published("")))
    for name in ("study", "scale", "data", "glue", "rates", "share", *(["hours"] if config.hours is not None else [])):
        if saved.get(name, now[name]) != now[name]:
            raise RunError(
                "other-configuration",
                f"{config.out}: its {name} is {saved.get(name)}, not {now[name]}; choose another --out",
            )
    return saved["budget"]
