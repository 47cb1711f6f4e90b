"""The kinds of input: which valid files are copied, how they are changed, and which command reads them."""

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from fuzz.material import EPOCH, LABELED, RUN, SIZES, TABLES, TEXTS
from fuzz.mutations import damage, plant_pickle
from fuzz.seals import content, seal_checkpoint, seal_data
from fuzz.words import damage_words, draw_environment, draw_words

NAMES = ["a\nb", "\x1b[31m", "[bold]", "x\u202ey", os.fsdecode(b"\xff"), "'", "-", "%s{0}", "x" * 200]


@dataclass(frozen=True)
class Case:
    """A command to run in a separate folder."""

    kind: str
    words: list[str]
    what: list[str]
    """Descriptions of the changes."""
    env: dict[str, str] = field(default_factory=dict)
    stdin: bytes = b""


@dataclass(frozen=True)
class Folder:
    """The folder of a case, and the folder of valid files."""

    base: Path
    path: Path
    draw: Random
    what: list[str]

    def take(self, name: str, break_it: bool = True) -> str:
        """Copy a file, change it, and sometimes give it a name with control characters; returns its path."""
        source, target = self.base / name, self.path / Path(name).name
        shutil.copyfile(source, target)
        if break_it:
            self.what.append(damage(target, self.draw))
        if self.draw.random() < 0.06 and os.path.lexists(target):
            named = target.with_name(self.draw.choice(NAMES) + target.name)
            target.rename(named)
            target = named
            self.what.append("name")
        return str(target)

    def take_folder(self, name: str, files: tuple[str, ...], pickles: bool = False) -> Path:
        """Copy a folder and change one of the files that match the patterns."""
        target = Path(shutil.copytree(self.base / name, self.path / Path(name).name))
        found = sorted(path for pattern in files for path in target.glob(pattern) if path.is_file())
        path = self.draw.choice(found)
        if self.draw.random() < 0.05:  # one valid file in place of another
            other = self.draw.choice(found)
            shutil.copyfile(other, path) if other != path else path.unlink()
            self.what.append(f"{path.name}: is {other.name}")
        elif pickles and self.draw.random() < 0.1:
            self.what.append(plant_pickle(next(target.rglob("model.safetensors")), self.draw))
        else:
            self.what.append(damage(path, self.draw))
        return target


def text(folder: Folder) -> list[str]:
    """Text of every format and compression."""
    path = folder.take(f"text/{folder.draw.choice(TEXTS)}")
    if folder.draw.random() < 0.15:  # in a folder, beside a good one
        shutil.copyfile(folder.base / "text/a.txt", folder.path / "z.txt")
        path = str(folder.path)
    more = folder.draw.choice(
        [[], [], ["--encoding-errors", "replace"], ["--documents", "line"], ["--documents", "file"]]
    )
    return [
        *folder.draw.choice([["tokenizer", path, "--vocab-size", "120"], ["tokenizer", path], prepare(folder, path), ["pretrain", path, *RUN]]),
        *more, "--out", "out",
    ]  # fmt: skip


def prepare(folder: Folder, path: str, tokenizer: str | None = None) -> list[str]:
    """A command that tokenizes."""
    return [
        "prepare",
        path,
        "--tokenizer",
        tokenizer or str(folder.base / "tokenizer"),
        "--seq-len",
        "24",
        "--workers",
        "1",
    ]


def config(folder: Folder) -> list[str]:
    """Config files."""
    (folder.path / "canary.py").write_text("import os\nos.mkdir('executed')\nclass Canary: pass\n")
    path = folder.take("run/config.yaml")
    return ["pretrain", "--config", path, "--out", "out", *folder.draw.choice([[], ["--steps", "2", *SIZES]])]


def words(folder: Folder) -> list[str]:
    """Arguments of every command."""
    given, what = damage_words(draw_words(folder.base, folder.draw), folder.draw)
    folder.what.extend(what)
    return given


def tokenizer(folder: Folder) -> list[str]:
    """Tokenizer directories, and files of them."""
    path = folder.take_folder("tokenizer", ("*.json", "*.txt"))
    if folder.draw.random() < 0.3:
        (path / "tokenizer.json").unlink(missing_ok=True)
        folder.what.append("without tokenizer.json")
    source = str(folder.base / "text/a.txt")
    given = str(folder.draw.choice([path, path, path / "vocab.txt"]))
    return [
        *folder.draw.choice([prepare(folder, source, given), ["pretrain", source, "--tokenizer", given, *RUN]]),
        "--out",
        "out",
    ]


def model(folder: Folder) -> list[str]:
    """Directories of pre-trained networks."""
    path = str(folder.take_folder("run/discriminator", ("*.json", "*.safetensors", "*.txt"), pickles=True))
    table = ["--train", str(folder.base / "table.csv"), *LABELED, "--out", "out", *EPOCH]
    return folder.draw.choice(
        [
            ["finetune", "table", "--model", path, *table],
            ["pretrain", str(folder.base / "text/a.txt"), "--init", path, *RUN, "--out", "out"],
            ["fill-mask", "the [MASK] is good", "--model", path],
        ]
    )


def finetuned(folder: Folder) -> list[str]:
    """Directories of fine-tuned models."""
    kind = folder.draw.choice(["table", "tagging", "squad", "plain"])
    path = folder.take_folder(f"{kind}/seed-0/model", ("*.json", "*.safetensors", "*.txt"), pickles=True)
    return ["predict", "--model", str(path), "--input", str(folder.base / inputs_of(kind)[0]), "--out", "out"]


def inputs_of(kind: str) -> list[str]:
    """List the inputs of a kind of fine-tuned model."""
    if kind == "table":
        return ["table.jsonl", "lines.txt", *TABLES]
    return ["tags.conll", "tags.jsonl"] if kind == "tagging" else ["questions.jsonl", "squad.json", "squad.json.gz"]


def prepared(folder: Folder) -> list[str]:
    """Prepared data, sometimes with the checksums of the changed files."""
    path = folder.take_folder("data", ("*.json", "*.npy", "*/*.arrow", "tokenizer/*"))
    if folder.draw.random() < 0.5:
        seal_data(path)
        folder.what.append("sealed")
    return folder.draw.choice(
        [
            ["pretrain", "--data", str(path), *RUN, "--out", "out"],
            ["evaluate", str(folder.base / "run"), "--data", str(path)],
        ]
    )


def checkpoint(folder: Folder) -> list[str]:
    """Checkpoints, sometimes with the checksums of the changed files."""
    path = folder.take_folder("stopped", ("checkpoints/*/*",))
    if folder.draw.random() < 0.6:
        for each in (path / "checkpoints").iterdir():
            seal_checkpoint(each)
        folder.what.append("sealed")
    return folder.draw.choice(
        [["pretrain", str(folder.base / "text/a.txt"), *RUN, "--out", str(path)], ["evaluate", str(path)]]
    )


def run(folder: Folder) -> list[str]:
    """Run directories, finished or not."""
    name = folder.draw.choice(["run", "stopped"])
    path = str(folder.take_folder(name, ("*.json", "*.jsonl", "*.yaml")))
    return folder.draw.choice(
        [
            ["pretrain", str(folder.base / "text/a.txt"), *RUN, "--out", path],
            ["pretrain", "--out", path],
            ["evaluate", path],
            ["evaluate-mlm", path, "--examples", "4"],
            ["fill-mask", "the [MASK] is good", "--model", path],
            [
                "finetune",
                "table",
                "--model",
                path,
                "--train",
                str(folder.base / "table.csv"),
                *LABELED,
                "--out",
                "out",
                *EPOCH,
            ],
        ]
    )


def finetuning(folder: Folder) -> list[str]:
    """Fine-tuning data."""
    start = ["--model", str(folder.base / "run"), *EPOCH, "--out", "out"]
    kind = folder.draw.choice(["table", "table", "tagging", "squad", "glue", "results"])
    if kind == "table":
        return [
            "finetune",
            "table",
            *start,
            *LABELED,
            "--train",
            folder.take(folder.draw.choice(TABLES)),
            *folder.draw.choice([[], ["--skip-bad-rows"], ["--label=id"]]),
        ]
    if kind == "tagging":
        return ["finetune", "tagging", *start, "--train", folder.take(folder.draw.choice(inputs_of(kind)))]
    if kind == "squad":
        path = folder.take(folder.draw.choice(["squad.json", "squad.json.gz"]))
        return ["finetune", folder.draw.choice(["squad1", "squad2"]), *start, "--train", path, "--dev", path]
    if kind == "glue":
        return ["finetune", "sst2", *start, "--data", str(folder.take_folder("glue", ("SST-2/*",)))]
    out = folder.take_folder("table", ("*.json", "seed-0/*.json", "seed-0/*.yaml", "seed-0/*.jsonl"))
    return [
        "finetune",
        "table",
        "--model",
        str(folder.base / "run"),
        "--train",
        str(folder.base / "table.csv"),
        *LABELED,
        *EPOCH,
        "--out",
        str(out),
    ]


def inputs(folder: Folder) -> list[str]:
    """Inputs to predict."""
    kind = folder.draw.choice(["table", "tagging", "squad", "plain"])
    path = folder.take(folder.draw.choice(inputs_of(kind)))
    return ["predict", "--model", str(folder.base / kind), "--input", path, *folder.draw.choice([[], ["--out", "out"]])]


def standard_input(folder: Folder) -> list[str]:
    """Standard input."""
    folder.take(folder.draw.choice(["lines.txt", "questions.jsonl", "tags.conll"]))
    if folder.draw.random() < 0.3:
        return ["fill-mask", "-", "--model", str(folder.base / "run")]
    return ["predict", "--model", str(folder.base / folder.draw.choice(["table", "tagging", "squad"])), "--input", "-"]


def environment(folder: Folder) -> list[str]:
    """Environment variables, for a new interpreter."""
    return folder.draw.choice(
        [
            ["evaluate", str(folder.base / "run")],
            ["tokenizer", str(folder.base / "text/a.txt"), "--out", "out", "--vocab-size", "120"],
            ["predict", "--model", str(folder.base / "table"), "--input", str(folder.base / "lines.txt")],
        ]
    )


KINDS: dict[str, tuple[int, Callable[[Folder], list[str]]]] = {
    "text": (14, text),
    "config file": (10, config),
    "arguments": (16, words),
    "tokenizer": (8, tokenizer),
    "model": (9, model),
    "fine-tuned model": (9, finetuned),
    "prepared data": (8, prepared),
    "checkpoint": (6, checkpoint),
    "run directory": (8, run),
    "fine-tuning data": (12, finetuning),
    "input to predict": (10, inputs),
    "standard input": (4, standard_input),
    "environment": (2, environment),
}
"""Name -> relative frequency, and function that makes a case."""


def draw_case(seed: int, number: int, base: Path, path: Path, kind: str | None = None) -> Case:
    """Draw case `number` of a seed, and write its files to the folder `path`."""
    draw = Random(f"{seed}:{number}:{kind or ''}")
    path.mkdir(parents=True, exist_ok=True)
    kind = kind or draw.choices(list(KINDS), [share for share, _ in KINDS.values()])[0]
    folder = Folder(base, path, draw, [])
    given = KINDS[kind][1](folder)
    env = draw_environment(draw) if kind == "environment" else {}
    stdin = b""
    if kind == "standard input":
        stdin = next(map(content, path.iterdir()), b"") or draw.randbytes(100)
    return Case(kind, given, folder.what or [str(env)], env, stdin)
