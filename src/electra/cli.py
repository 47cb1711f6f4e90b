"""The command line: words -> given options -> a function of `electra.commands` -> its result on the terminal."""

import io
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from electra.config.options import lookup

if TYPE_CHECKING:
    from electra.config.parser import Parser

MAX_MESSAGE = 2000
"""Characters of an error message; it can quote a value of any length."""
HELP = """usage: electra COMMAND ...

Pre-train a text encoder by replaced token detection, from a folder of text to a Hugging Face checkpoint.

commands:
{commands}

`electra COMMAND --help` explains the options of a command.
Try it:  electra pretrain builtin --preset tiny --hours 0.06 --out demo
"""


@dataclass(frozen=True)
class Command:
    """What the command line adds to a function of `electra.commands`, whose parameters are the options."""

    summary: str
    config: str = ""
    """Module and name of the dataclass whose fields are options too."""
    is_result: bool = False
    """What it prints is its result; the other commands continue when their output cannot be written."""
    writes_json: bool = False
    """Its result are JSON lines on standard output, so that log records and progress go to standard error."""
    shows: bool = True
    """There is a function in `electra.display` for what it returns."""
    changes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Differences of options from the function's parameters, by option."""


PRESET = {"preset": {"choices": lookup("electra.presets.PRESETS"), "optional": False}}
METHODS = {"methods": {"choices": lookup("electra.pretraining.evaluation.network_scorer.METHODS")}}
COMMANDS = {
    "pretrain": Command(
        "Pre-train an encoder, from text to a scored Hugging Face checkpoint.",
        "electra.pretraining.config.PretrainConfig",
        changes=PRESET,
    ),
    "advise": Command("Recommend a pre-training run for a text and a number of hours on this machine.", is_result=True),
    "tokenizer": Command("Train a WordPiece tokenizer on text.", shows=False),
    "prepare": Command("Tokenize text into shards that training maps into memory.", shows=False),
    "evaluate": Command("Compute the held-out metrics of a run.", is_result=True),
    "evaluate-mlm": Command("Compute the masked-LM accuracy of an ELECTRA on held-out text.", is_result=True),
    "fill-mask": Command("Predict the tokens at [MASK] with an ELECTRA or a masked language model.", is_result=True),
    "score": Command(
        "Score sentences by a pre-trained model, as JSON lines.", is_result=True, writes_json=True, changes=METHODS
    ),
    "minimal-pairs": Command(
        "Compute the accuracies of a pre-trained model on minimal pairs, such as BLiMP.",
        is_result=True,
        changes=METHODS,
    ),
    "finetune": Command(
        "Fine-tune an encoder on a task by the paper's protocol, and score it.",
        "electra.finetuning.config.FinetuneConfig",
        changes={"task": {"choices": lookup("electra.finetuning.registry.TASKS")}},
    ),
    "predict": Command(
        "Predict labels, tags or answers with a fine-tuned model, as JSON lines.",
        "electra.inference.config.PredictConfig",
        is_result=True,
        writes_json=True,
        changes={
            "model": {"positional": False},
            "input": {
                "positional": False,
                "many": False,
                "help": "Text (.txt .jsonl .csv .tsv .parquet), words to tag (also CoNLL), or questions (also SQuAD); "
                "- is the standard input.",
            },
            "out": {"help": "File for the JSON lines; by default the standard output."},
        },
    ),
    "glue": Command(
        "Fine-tune an encoder on the tasks of GLUE over several seeds, and compare it with the paper.",
        "electra.finetuning.config.FinetuneConfig",
    ),
    "flops": Command("Count the FLOPs and parameters of a preset.", is_result=True, changes=PRESET),
    "paper-table": Command("Compute the FLOPs and parameters in a table of the paper.", is_result=True),
    "study": Command(
        "Compare variants of pre-training at equal compute by a grid of runs, as in the tables and figures of the paper.",
        changes={
            "name": {"choices": lookup("electra.studies.catalog.STUDIES")},
            "scale": {"choices": lookup("electra.studies.scales.SCALES")},
        },
    ),
}


def main(argv: Sequence[str] | None = None) -> None:
    """Run a command. Exits with 0, with 2 after a user's error, with 128 + n after signal n.

    A command whose output is its result ends as by SIGPIPE when nobody reads it any more.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    from electra.errors import ElectraError

    try:
        try:
            run(words)
        finally:
            flush(required=is_result(words))
    except ElectraError as error:
        fail(f"error: {error}", cause=error)
    except BrokenPipeError:
        from electra.console import redirect_to_null

        redirect_to_null(sys.stdout)
        raise SystemExit(128 + signal.SIGPIPE) from None
    except OSError as error:  # not turned into an ElectraError
        name = "" if error.filename is None else f"{error.filename}: "
        fail(f"error: {name}{error.strerror or error}")
    except KeyboardInterrupt:
        fail("interrupted; a command with --out resumes when it is run again", 130)


def run(words: list[str]) -> None:
    """Run a command, or print the version or the list of commands."""
    rest = list(words)
    flags = take_flags(rest)
    if not rest:
        rows = "\n".join(f"  {name:<14} {command.summary}" for name, command in COMMANDS.items())
        print(HELP.format(commands=rows), end="")
        return
    name = rest.pop(0)
    if name == "--version":
        from electra import __version__

        print(f"electra {__version__}")
        return
    check_command(name)
    from electra.console import console, show_log

    show_log(10 if "--verbose" in flags else 30 if "--quiet" in flags else 20)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal of another encoding than UTF-8 has no "·"
    console.required = is_result(words)
    console.stderr = COMMANDS[name].writes_json and "--help" not in flags
    try:
        if "--help" in flags:
            sys.stdout.write(format_help(name, rest))
        else:
            run_command(name, rest)
    finally:
        console.required = console.stderr = False


def run_command(name: str, words: Sequence[str]) -> None:
    """Call the function of a command with the given options, and show its result."""
    from electra import commands

    if name == "predict":
        check_predict_words(words)
    given = build_parser(name).parse(words)
    arguments = dict(given)
    if name == "predict":
        arguments["input"] = Path(given["input"])  # a string is a text
    if COMMANDS[name].writes_json and sys.stdout is None and given.get("out") is None:
        from electra.errors import UsageError

        hint = "; name a file for the predictions by --out" if name == "predict" else ""
        raise UsageError("stdout-closed", f"standard output is closed{hint}")
    result = getattr(commands, name.replace("-", "_"))(**arguments)
    if COMMANDS[name].shows:
        from electra import display

        getattr(display, f"show_{name.replace('-', '_')}")(result, given)


def build_parser(name: str) -> "Parser":
    """The command line of a command: parameters of its function, then fields of its configuration."""
    import dataclasses

    from electra import commands
    from electra.config.declarations import get_function_options, get_options, get_sections
    from electra.config.parser import Parser

    command = COMMANDS[name]
    options = get_function_options(getattr(commands, name.replace("-", "_")))
    sections: dict[str, str] = {}
    if command.config:
        config = lookup(command.config)()
        options = options | {key: option for key, option in get_options(config).items() if key not in options}
        sections = get_sections(config)
    for key, changes in command.changes.items():
        options[key] = dataclasses.replace(options[key], **changes)
    return Parser(name, options, sections)


def format_help(name: str, words: Sequence[str]) -> str:
    """The help text of a command; that of pre-training has the defaults of the preset that is given."""
    from electra.errors import UsageError

    parser = build_parser(name)
    given: dict[str, Any] = {}
    with suppress(UsageError):
        given = parser.parse(words, complete=False)
    description, defaults = COMMANDS[name].summary, {}
    if name == "pretrain":
        from electra.config.resolve import flat_fields
        from electra.presets import get_preset

        preset = get_preset(given.get("preset") or "small")
        defaults = flat_fields(preset)
        description += (
            " Run again with the same --out, it resumes. Values come from the preset, then from the file --config, then "
            f"from the options, each overriding the one before. The defaults shown are those of the preset {preset.preset}."
        )
    return parser.format_help(description, defaults)


def check_command(name: str) -> None:
    """Raise a `UsageError` that names the nearest command if there is none of this name."""
    if name not in COMMANDS:
        import difflib

        from electra.errors import UsageError

        near = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(COMMANDS)}"
        raise UsageError("unknown-command", f"there is no command {name!r}; {hint}")


def take_flags(words: list[str]) -> set[str]:
    """Remove the flags that every command has from its words, and return their long names."""
    short = {"-h": "--help", "-q": "--quiet", "-v": "--verbose"}
    known = {**short, **{flag: flag for flag in short.values()}}
    end = words.index("--") if "--" in words else len(words)
    flags = {known[word] for word in words[:end] if word in known}
    words[:end] = [word for word in words[:end] if word not in known]
    return flags


def check_predict_words(words: Sequence[str]) -> None:
    """Raise a `UsageError` for a text among the words of `electra predict`, where it takes the name of a file."""
    import shlex

    from electra.errors import UsageError

    for before, word in pairs(words):
        source = word.removeprefix("--input=")
        named = source != word or before == "--input"
        is_text = named and not (Path(source).suffix or Path(source).exists() or source.startswith(("-", "hf://")))
        is_value = before.startswith("--") and "=" not in before
        if is_text or not (is_value or word.startswith("-")):
            code, problem = ("text-as-file", "is not a file") if named else ("text-as-option", "is not an option")
            raise UsageError(
                code,
                f"{shlex.quote(source)} {problem}; texts are read from a file, --input FILE, or from standard input: "
                f"echo {shlex.quote(source)} | electra predict --model MODEL --input -",
            )


def pairs(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Each word with the one before it."""
    return zip(["", *words], words, strict=False)


def is_result(words: Sequence[str]) -> bool:
    """Whether what a command line prints is its result."""
    rest = list(words)
    flags = take_flags(rest)
    return "--help" in flags or not rest or rest[0] not in COMMANDS or COMMANDS[rest[0]].is_result


def fail(line: str, status: int = 2, cause: Exception | None = None) -> NoReturn:
    """Exit with a line on standard error; the exit has its cause for a program that calls `main`."""
    from electra.console import print_to_stderr
    from electra.external import shorten

    print_to_stderr(shorten(line, MAX_MESSAGE))
    raise SystemExit(status) from cause


def flush(required: bool) -> None:
    """Write the buffer of the standard output now, while an error can still be reported."""
    if sys.stdout is not None:
        try:
            sys.stdout.flush()
        except OSError:
            from electra.console import Output

            Output(sys.stdout, required).flush()
