"""Random changes of command lines and environment variables."""

import io
import re
import shlex
from contextlib import redirect_stdout, suppress
from functools import cache
from pathlib import Path
from random import Random

from electra.cli import COMMANDS, main
from fuzz.material import EPOCH, RUN

VALUES = ["", " ", "-1", "0", "1", "3", "nan", "inf", "-inf", "1e300", "1e999", "-0.0", "0.5", "1e7", "9" * 20, "9" * 5000, "\udcff", "x\ny", "\x1b[31m", "x" * 5000,
          "[" * 3000, "{", "[1, 2]", "{a: 1}", "&a x", "*a", "!!python/object/apply:os.mkdir [executed]", "null", "true", "-", "--", "~", "=", "@x", "%s", "/dev/zero",
          "/dev/null", "/", ".", "..", "hf://x", "builtin", "0x10", "1_000", "1:30", "٣", "canary.Canary", "os.mkdir"]  # fmt: skip
WORK = {"--steps", "--hours", "--flops", "--epochs", "--seeds", "--workers", "--runtime.threads"}
"""Options of which large values are valid and take much time."""
LARGE = {"1e7", "1e300", "9" * 20, "inf"}


COMMAND_LINES = (
    "pretrain BASE/text/a.txt --out out RUN",
    "pretrain --data BASE/data --out out RUN",
    "advise BASE/text/a.txt --hours 0.001 --write recipe.yaml --threads 1",
    "tokenizer BASE/text/a.txt --out out --vocab-size 100",
    "prepare BASE/text/a.txt --tokenizer BASE/tokenizer --out out --seq-len 24 --workers 1",
    "evaluate BASE/run",
    "evaluate-mlm BASE/run --examples 4",
    "fill-mask 'the [MASK] is' --model BASE/run --top 3",
    "score 'the cat is good .' --model BASE/run --methods both --mask-fraction 0.2",
    "score --input BASE/lines.txt --model BASE/run",
    "minimal-pairs BASE/run BASE/pairs.jsonl --out out",
    "finetune table --model BASE/run --train BASE/table.csv --out out EPOCH",
    "finetune sst2 --model BASE/run --data BASE/glue --out out EPOCH",
    "glue --model BASE/run --data BASE/glue --out out --tasks sst2 --seeds 1 EPOCH",
    "predict --model BASE/table --input BASE/lines.txt --out out",
    "flops --preset tiny --steps 5",
    "paper-table 8",
    "study objectives --data BASE/text/a.txt --glue BASE/glue --out out --variants 'none such'",
)
"""Valid command lines; BASE is the folder of the material, RUN and EPOCH are options."""


def draw_words(base: Path, draw: Random) -> list[str]:
    """Draw a valid command line."""
    options = {"RUN": RUN, "EPOCH": EPOCH}
    words = shlex.split(draw.choice(COMMAND_LINES))
    return [part for word in words for part in options.get(word, [word.replace("BASE", str(base))])]


@cache
def get_options(command: str) -> list[str]:
    """List all options of a command, and some that it may not have."""
    shown = io.StringIO()
    if command in COMMANDS:
        with redirect_stdout(shown), suppress(SystemExit):
            main([command, "--help"])
    own = re.findall(r"^  (--[a-z0-9.-]+)", shown.getvalue(), re.MULTILINE)
    own = [option for option in own if option != "--training.compile"]  # it takes a minute, as its help text warns
    return own * 3 + ["--help", "--version", "--", "--model", "--optimizer", "--config", "--lr", "--text"]


def damage_words(words: list[str], draw: Random) -> tuple[list[str], list[str]]:
    """Change one or two words of a command line; returns it with descriptions of the changes."""
    what = []
    for _ in range(draw.choice([1, 1, 2])):
        place = draw.randrange(len(words)) if words else 0
        kind = draw.choice(["value", "value", "value", "option", "option", "option", "gone", "twice", "swap", "letter"])
        value = draw.choice(VALUES)
        option = draw.choice(get_options(words[0] if words else ""))
        if kind == "option":
            value = draw.choice([each for each in VALUES if each not in LARGE or option not in WORK])
            words += draw.choice([[option, value], [f"{option}={value}"], [option]])
        elif words and kind == "gone":
            del words[place]
        elif words and kind == "twice":
            words[place:place] = [words[place]]
        elif words and kind == "swap":
            other = draw.randrange(len(words))
            words[place], words[other] = words[other], words[place]
        elif words and kind == "letter":
            at = draw.randrange(len(words[place]) + 1)
            words[place] = (
                words[place][:at] + draw.choice(["x", "\n", "\x1b", "\udc80", " ", "-", "="]) + words[place][at:]
            )
        elif words:
            before = words[place - 1] if place else ""
            if value not in LARGE or before not in WORK:
                words[place] = value
        what.append(f"{kind} {option if kind == 'option' else ''} {ascii(value)[:40]} at {place}")
    return words, what


def draw_environment(draw: Random) -> dict[str, str]:
    """Draw one or two environment variables with unusual values."""
    names = ["RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_PORT", "MPLBACKEND", "OMP_NUM_THREADS", "TORCH_EXTENSIONS_DIR", "XDG_CACHE_HOME", "HOME", "TMPDIR",
             "COLUMNS", "TERM", "LANG", "LC_ALL", "PYTHONIOENCODING", "PYTHONUTF8", "CUDA_VISIBLE_DEVICES", "TOKENIZERS_PARALLELISM", "HF_HOME", "CXX", "CC",
             "MPLCONFIGDIR", "NO_COLOR", "FORCE_COLOR", "LINES"]  # fmt: skip
    values = [
        "",
        "x",
        "-1",
        "0",
        "2",
        "nan",
        "1e9",
        "9" * 30,
        "/dev/null",
        "/nowhere",
        "C",
        "ascii",
        "latin-1",
        "xx_XX.UTF-16",
        "\x1b[31m",
        "a\nb",
    ]
    chosen = {draw.choice(names): draw.choice(values) for _ in range(draw.choice([1, 1, 2]))}
    if chosen.get("PYTHONIOENCODING") not in (None, "ascii", "latin-1"):  # Python itself does not start
        chosen["PYTHONIOENCODING"] = "ascii"
    if chosen.get("PYTHONUTF8") not in (None, "0"):
        chosen["PYTHONUTF8"] = "0"
    return chosen
