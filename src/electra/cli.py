"""The command line: one verb per command, each imported only when it is called."""

import io
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

COMMANDS = {
    "pretrain": "Everything: text to tokenizer, shards, training, held-out metrics, checkpoint and report.",
    "tokenizer": "Train a WordPiece vocabulary on text.",
    "prepare": "Turn text into shards that training maps into memory.",
    "evaluate": "The held-out metrics of a run.",
    "fill-mask": "The likeliest words for [MASK], by an ELECTRA or a masked language model.",
    "finetune": "Fine-tune an encoder on a task by the paper's protocol, and score it.",
    "predict": "Labels, tags or answers of a fine-tuned model for a stream of inputs.",
    "glue": "Every task of GLUE over several seeds, as one table beside the paper's rows.",
    "flops": "Train and inference FLOPs and parameters of a preset, or of a table of the paper.",
    "study": "A table or figure of the paper as a grid of runs at equal compute.",
}
MESSAGE_CHARS = 2000
"""Of an error at most; it may quote a value of any length."""
HELP = """usage: electra COMMAND …

Pre-train a text encoder by replaced token detection, from a folder of text to a Hugging Face checkpoint.

commands:
{commands}

`electra COMMAND --help` explains every option of a command with its default.
Try it:  electra pretrain builtin --preset tiny --hours 0.06 --out demo
"""


RESULTS = ("evaluate", "fill-mask", "predict", "flops")
"""Commands whose output is their result. The others go on if nobody reads what they print."""


def main(argv: Sequence[str] | None = None) -> None:
    """Run a command. Exits with 0, with 2 after an error of the user's, with 128 + n after signal n.

    A command whose output is its result ends as by SIGPIPE if nobody reads it any more.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    from electra.errors import ElectraError

    try:
        try:
            run(words)
        finally:
            flush(required=is_result(words))
    except ElectraError as error:
        fail(f"error: {error}")
    except BrokenPipeError:
        from electra.console import discard

        discard(sys.stdout)
        raise SystemExit(128 + signal.SIGPIPE) from None
    except OSError as error:  # without a message of our own
        name = "" if error.filename is None else f"{error.filename}: "
        fail(f"error: {name}{error.strerror or error}")
    except KeyboardInterrupt:
        fail("interrupted; what was finished is kept where the command has an --out: run it again to go on", 130)


def run(words: list[str]) -> None:
    """Run a command, or print what there is to know of all of them."""
    if not words or words[0] in ("-h", "--help"):
        rows = "\n".join(f"  {name:<10} {line}" for name, line in COMMANDS.items())
        print(HELP.format(commands=rows), end="")
        return
    if words[0] == "--version":
        from electra import __version__

        print(f"electra {__version__}")
        return
    function = command(words[0])
    from electra.console import console, show_log

    show_log()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal of another encoding than UTF-8 has no "·"

    console.required = is_result(words)
    try:
        function(words[1:])
    finally:
        console.required = False


def is_result(words: Sequence[str]) -> bool:
    """Whether what a command line prints is what it is for."""
    return not words or words[0] not in COMMANDS or words[0] in RESULTS or not {"-h", "--help"}.isdisjoint(words)


def fail(line: str, status: int = 2) -> NoReturn:
    """End with a line on standard error."""
    from electra.console import complain
    from electra.external import shortened

    complain(shortened(line, MESSAGE_CHARS))
    raise SystemExit(status) from None


def flush(required: bool) -> None:
    """Write what is left in standard output's buffer now, when an error can still be told."""
    if sys.stdout is not None:
        try:
            sys.stdout.flush()
        except OSError:
            from electra.console import Output

            Output(sys.stdout, required).flush()


def command(name: str) -> Callable[[list[str]], Any]:
    """The function that takes a command's words.

    Raises:
        UsageError: there is no such command; the nearest one is named.
    """
    if name in VERBS:
        return VERBS[name]
    if name in COMMANDS:
        return lambda words: run_function(name, words)
    import difflib

    from electra.errors import UsageError

    near = difflib.get_close_matches(name, COMMANDS, n=1)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(COMMANDS)}"
    raise UsageError(f"there is no command {name!r}; {hint}")


def run_function(name: str, words: list[str]) -> Any:
    """A command whose options are its function's parameters; `fill-mask` is `fill_mask` there. Returns what it returns."""
    from electra import commands
    from electra.config.parser import Parser

    function = getattr(commands, name.replace("-", "_"))
    parser = Parser(prog=f"electra {name}", description=COMMANDS[name])
    positionals = POSITIONALS.get(name, {})
    for positional, about in positionals.items():
        parser.add_argument(positional, **about)
    parser.add_function_arguments(function, skip=set(positionals))
    return function(**vars(parser.instantiate(parser.read(words))))


PRIVATE: dict[str, Any] = {
    "type": bool,
    "default": False,
    "help": "What is written is for its owner alone: directories have mode 0700, files 0600.",
}
TEXT = {"nargs": "+", "type": str, "help": "Files, folders, hf://owner/name, or builtin."}
POSITIONALS: dict[str, dict[str, dict[str, Any]]] = {
    "tokenizer": {"text": TEXT},
    "prepare": {"text": TEXT},
    "evaluate": {"run": {"type": str, "help": "Run directory, finished or not."}},
    "fill-mask": {"text": {"nargs": "+", "type": str, "help": 'Texts with [MASK]; "-" is standard input.'}},
}
"""Parameters of a command's function that stand without their name."""


def run_pretrain(words: list[str]) -> None:
    """`electra pretrain`: the defaults of its options depend on others of them, the preset and the config file."""
    import argparse

    from electra.commands.pretraining import BUDGETS, pretrain_parser, settle_budget, warn_of_idle
    from electra.config.parser import underscored
    from electra.external import output_path
    from electra.pretraining.config import build
    from electra.pretraining.run import pretrain
    from electra.storage import owner_only

    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    for option in ("--preset", "--config", "--out", "--data", "--init"):
        first.add_argument(option, nargs="?")
    known, rest = first.parse_known_args([underscored(word) for word in words])
    given = {name: value for name, value in vars(known).items() if value is not None}
    given["text"] = [word for word in rest[:1] if not word.startswith("-")]

    out = output_path(given.get("out", "."))  # where it is missing, the parser says so
    parser = pretrain_parser(given, given.get("config"), out)
    parser.add_argument("--out", type=str, required=True, help="Run directory.")
    parser.add_argument("--private", **PRIVATE)
    parser.add_argument("--config", type=str, help="Config file; it overrides the preset, and options override it.")
    values = parser.read(words)
    names = {underscored(word).partition("=")[0].removeprefix("--") for word in words}
    for name, value in settle_budget({name: values[name] for name in BUDGETS if name in names}).items():
        values[name] = value
    config = build(parser, values)
    warn_of_idle(sorted(names), config)
    with owner_only(values.private):
        pretrain(config, out)


def run_finetune(words: list[str]) -> None:
    """`electra finetune`: its options are the fields of a configuration."""
    from electra.console import console
    from electra.errors import UsageError
    from electra.external import output_path
    from electra.finetuning.config import FinetuneConfig, build, options
    from electra.finetuning.registry import TASKS
    from electra.finetuning.run import finetune
    from electra.storage import owner_only

    parser = options(FinetuneConfig(), prog="electra finetune", description=COMMANDS["finetune"])
    parser.add_argument("task", type=str, help=f"One of {', '.join(TASKS)}.")
    parser.add_argument("--out", type=str, required=True, help="Directory of the results, with one for each seed.")
    parser.add_argument("--private", **PRIVATE)
    parser.add_argument("--seeds", type=int, default=1, help="Runs, with seeds from --seed on.")
    values = parser.read(words)
    if not values.model:
        raise UsageError("--model is missing: a Hugging Face ELECTRA directory, a run directory, or a hub name")
    out = output_path(values.out)
    with owner_only(values.private):
        summary = finetune(build(parser, values, values.task), out, values.seeds)
    if values.seeds > 1:
        for split, metrics in summary["metrics"].items():
            for metric, spread in metrics.items():
                line = f"{split} {metric}: median {spread['median']:.1f}, standard deviation {spread['std']:.1f}"
                console.print(f"{line} over {values.seeds} seeds", markup=False)
    console.print(f"Results: {out / 'results.json'}", markup=False)


def run_predict(words: list[str]) -> None:
    """`electra predict`: JSON lines on standard output, or in a file."""
    import json

    from electra import commands
    from electra.config.hints import check_input
    from electra.console import Output, console
    from electra.errors import UsageError
    from electra.inference.config import options

    check_input(words)
    parser = options(prog="electra predict", description=COMMANDS["predict"])
    model = "Directory that electra finetune wrote, another fine-tuned Hugging Face ELECTRA, or a hub name."
    kinds = (
        "Text (.txt .jsonl .csv .tsv .parquet), words to tag (also CoNLL), questions (also SQuAD); - is standard input."
    )
    parser.add_argument("--model", type=str, required=True, help=model)
    parser.add_argument("--input", type=str, required=True, help=kinds)
    parser.add_argument("--out", type=str, help="File for the JSON lines; by default standard output.")
    parser.add_argument("--private", **PRIVATE)
    arguments = vars(parser.read(words).as_flat())
    if sys.stdout is None and arguments["out"] is None:
        raise UsageError("standard output is closed; name a file for the predictions by --out")
    console.stderr = True  # standard output is for predictions alone
    try:
        for row in commands.predict(**arguments | {"input": Path(arguments["input"])}):
            if arguments["out"] is None:
                output = Output(sys.stdout, required=True)
                output.write(json.dumps(row, ensure_ascii=False) + "\n")
                output.flush()
    finally:
        console.stderr = False


def run_fill_mask(words: list[str]) -> None:
    """`electra fill-mask`: the answers as tables."""
    from electra.commands.masked_lm import show_answers

    show_answers(run_function("fill-mask", words))


def run_glue(words: list[str]) -> None:
    """`electra glue`: the options of fine-tuning, and those of the grid."""
    from electra.errors import UsageError
    from electra.external import output_path
    from electra.finetuning.benchmark.grid import glue
    from electra.finetuning.config import FinetuneConfig, build, options
    from electra.storage import owner_only

    parser = options(FinetuneConfig(), prog="electra glue", description=COMMANDS["glue"])
    parser.add_argument("--out", type=str, required=True, help="Directory of the results, with one for each task.")
    parser.add_argument("--private", **PRIVATE)
    parser.add_argument("--seeds", type=int, default=10, help="Runs of each task; scores are medians over them.")
    tasks = (
        "Tasks, wnli and ax among them; by default the paper's eight, and for --submission WNLI if its data is there."
    )
    parser.add_argument("--tasks", nargs="+", type=str, default=[], help=tasks)
    parser.add_argument(
        "--intermediate", type=bool, default=False, help="RTE and STS start from MNLI, RTE at 2e-5 (Appendix B)."
    )
    parser.add_argument(
        "--ensemble", type=int, help="Average this many runs, the best on dev (Appendix B: 10 of --seeds 30)."
    )
    parser.add_argument("--submission", type=bool, default=False, help="Write the files that gluebenchmark.com takes.")
    values = parser.read(words)
    if not values.model:
        raise UsageError("--model is missing: a Hugging Face ELECTRA directory, a run directory, or a hub name")
    with owner_only(values.private):
        glue(
            build(parser, values, ""),
            output_path(values.out),
            tasks=values.tasks,
            seeds=values.seeds,
            intermediate=values.intermediate,
            ensemble=values.ensemble,
            submission=values.submission,
        )


def run_study(words: list[str]) -> None:
    """`electra study`: the parameters of the function, and two of them as lists."""
    from electra import commands
    from electra.config.parser import Parser
    from electra.studies.catalog import STUDIES
    from electra.studies.scales import SCALES

    parser = Parser(prog="electra study", description=COMMANDS["study"])
    parser.add_argument("name", type=str, help=f"One of {', '.join(STUDIES)}.")
    parser.add_function_arguments(commands.study, skip={"name", "tasks", "variants", "rates"})
    parser.describe("scale", f"One of {', '.join(SCALES)}.")
    for option, about in (
        (
            "--tasks",
            "Tasks of GLUE; by default the paper's eight, at the scales tiny and mini cola sst2 mrpc stsb rte.",
        ),
        ("--variants", "Run only these variants; by default all."),
        ("--rates", "Peak learning rates by objective, as the study learning-rate finds them: electra=2e-3 mlm=1e-3."),
    ):
        parser.add_argument(option, nargs="+", type=str, default=[], help=about)
    if commands.study(**vars(parser.instantiate(parser.read(words)))).get("failed"):
        raise SystemExit(1)


VERBS: dict[str, Callable[[list[str]], None]] = {
    "pretrain": run_pretrain,
    "finetune": run_finetune,
    "predict": run_predict,
    "fill-mask": run_fill_mask,
    "glue": run_glue,
    "study": run_study,
}
"""Commands that are more than a call of their function."""
