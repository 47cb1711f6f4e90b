"""What to do instead of an option that does not exist: the nearest name, or an answer to what other tools offer."""

import difflib
import shlex
from collections.abc import Mapping
from pathlib import Path

from electra.errors import UsageError

NEAR = 0.75
"""Similarity (difflib's ratio) below which another name is no likely slip of the pen."""
NEAR_WORD = 0.8
"""The same for the last parts of dotted names, which are shorter."""

RENAMED: dict[str, tuple[str, ...]] = {
    "lr": ("learning_rate", "optimizer.learning_rate"),
    "output_dir": ("out",),
    "output": ("out",),
    "save_dir": ("out",),
    "model_name_or_path": ("model", "init"),
    "model_name": ("model", "init"),
    "checkpoint": ("model", "init"),
    "pretrained": ("model", "init"),
    "per_device_train_batch_size": ("batch_size", "training.batch_size"),
    "train_batch_size": ("batch_size", "training.batch_size"),
    "num_train_epochs": ("epochs",),
    "num_epochs": ("epochs",),
    "max_steps": ("steps",),
    "num_steps": ("steps",),
    "num_train_steps": ("steps",),
    "max_seq_length": ("max_length", "seq_len"),
    "max_seq_len": ("max_length", "seq_len"),
    "max_length": ("seq_len",),
    "seq_length": ("max_length", "seq_len"),
    "seq_len": ("max_length",),
    "warmup_steps": ("schedule.warmup_steps", "warmup"),
    "warmup_ratio": ("warmup", "schedule.max_warmup"),
    "save_steps": ("training.checkpoint_every",),
    "logging_steps": ("training.log_every",),
    "num_workers": ("workers",),
    "num_proc": ("workers",),
    "train_file": ("train",),
    "validation_file": ("dev",),
    "test_file": ("test",),
    "mlm_probability": ("masking.fraction",),
    "mask_prob": ("masking.fraction",),
}
"""Options of other tools -> ours, of which the first that the command has is named."""

PRETRAIN, FINETUNE = ("pretrain",), ("finetune", "glue")
RUNS = ("prepare", *PRETRAIN, *FINETUNE, "study")
PRECISION, DEVICE = ("runtime.precision", "precision"), ("runtime.device", "device")

ANSWERS: tuple[tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...], str], ...] = (
    (
        ("resume", "resume_from", "resume_from_checkpoint"),
        RUNS,
        (),
        "what was interrupted goes on when the same command is run again with the same --out",
    ),
    (
        ("extend", "continue", "more_steps"),
        PRETRAIN,
        (),
        "a finished run is not extended; continue its weights in another run with --init RUN --out ANOTHER",
    ),
    (
        ("overwrite", "overwrite_output_dir", "force"),
        (*RUNS, "tokenizer"),
        (),
        "nothing is overwritten; delete the directory, or choose another --out",
    ),
    (("fp16", "half", "amp"), (), PRECISION, "float16 is not offered; use {} bfloat16"),
    (("bf16", "mixed_precision"), (), PRECISION, "use {} bfloat16"),
    (
        ("gpus", "gpu", "num_gpus", "n_gpu", "devices", "nproc", "nproc_per_node", "num_processes"),
        PRETRAIN,
        (),
        "for several GPUs start torchrun --nproc-per-node N -m electra pretrain …; CUDA_VISIBLE_DEVICES chooses which",
    ),
    (
        ("gpus", "gpu", "num_gpus", "n_gpu", "devices"),
        (),
        DEVICE,
        "{} cuda takes one GPU; CUDA_VISIBLE_DEVICES chooses which",
    ),
    (("cpu", "use_cpu", "no_cuda", "no_gpu"), (), DEVICE, "use {} cpu"),
    (("cuda", "use_cuda", "use_gpu"), (), DEVICE, "use {} cuda"),
    (
        ("epochs", "num_train_epochs", "num_epochs", "max_epochs"),
        PRETRAIN,
        (),
        "the length of pre-training is --steps, --hours or --flops; with --steps the number of epochs is printed",
    ),
    (
        ("steps", "max_steps", "num_train_steps", "hours"),
        FINETUNE,
        (),
        "the length of fine-tuning is --epochs, passes over the training examples",
    ),
    (
        ("class_weights", "class_weight", "pos_weight"),
        FINETUNE,
        (),
        "classes are not weighted; to weight a class, repeat its rows in the training file",
    ),
    (
        ("gradient_accumulation_steps", "accumulate_grad_batches"),
        (),
        ("training.micro_batch_size",),
        "{} splits a batch into parts whose gradients are accumulated",
    ),
    (
        ("load_best_model_at_end", "early_stopping"),
        (),
        ("select",),
        "use {} best: the epoch that is best on dev is kept",
    ),
    (
        ("wandb", "report_to", "tensorboard", "logging_dir"),
        (*PRETRAIN, *FINETUNE),
        (),
        "metrics are written to metrics.jsonl and, for TensorBoard, to events/ in --out",
    ),
    (
        ("text", "dataset", "corpus", "input"),
        ("tokenizer", "prepare", *PRETRAIN),
        (),
        "text is named without an option: files, folders, hf://owner/name, or builtin",
    ),
)
"""Wishes without an option of ours: names, the commands that are asked (none: all), options of which the command has to have
one (the first replaces {}), the answer."""


def suggest_option(name: str, names: list[str], program: str) -> str:
    """What to do instead of the option `name`, which does not exist; `names` are those that do. Underscores in both."""
    command = program.rpartition(" ")[2]
    for wishes, commands, options, answer in ANSWERS:
        found = next((each for each in options if each in names), None)
        if name in wishes and (not commands or command in commands) and (not options or found):
            return answer.format(hyphenated(found or ""))
    near = next((each for each in RENAMED.get(name, ()) if each in names), None) or find_nearest(name, names)
    return f"did you mean {hyphenated(near)}?" if near else "--help lists all options"


def find_nearest(name: str, names: list[str]) -> str | None:
    """The name that was probably meant, None if none is near."""
    last = name.rpartition(".")[2]
    if abbreviated := [each for each in names if initials(each) == last]:
        return abbreviated[0]
    by_last = {each.rpartition(".")[2]: each for each in reversed(names)}
    near = [each for each in names if each.rpartition(".")[2] == last]
    near += difflib.get_close_matches(name, names, cutoff=NEAR)
    near += [by_last[each] for each in difflib.get_close_matches(last, list(by_last), cutoff=NEAR_WORD)]
    return max(near, key=lambda each: difflib.SequenceMatcher(None, name, each).ratio(), default=None)


def initials(name: str) -> str | None:
    """`lr` for `optimizer.learning_rate`; None for a name of one word."""
    words = name.rpartition(".")[2].split("_")
    return "".join(word[:1] for word in words) if len(words) > 1 else None


def hyphenated(name: str) -> str:
    """An option's name as it is typed."""
    return "--" + name.replace("_", "-")


def suggest_value(name: str, value: str) -> str:
    """What to add to the message that an option cannot have a value; empty most often."""
    if name.rpartition(".")[2] == "device" and value.startswith("cuda:"):
        return f"; to choose a GPU, set CUDA_VISIBLE_DEVICES={value.removeprefix('cuda:')} and use cuda"
    return ""


def check_local(paths: Mapping[str, object], hub_name: str | None = None) -> None:
    """See that paths, by the names of their options, are no addresses of the Hugging Face hub.

    The option `hub_name` takes names of models on the hub, without hf://.

    Raises:
        UsageError: one is; the message has it as it was given, which a `Path` has not (hf:/owner/name).
    """
    for option, path in paths.items():
        if path is None or not str(path).startswith("hf:/"):
            continue
        name = str(path).removeprefix("hf:").lstrip("/")
        kind = "" if option in ("--model", "--init", "--tokenizer") else "--repo-type dataset "
        advice = f"download it first: hf download {kind}{name} --local-dir FOLDER"
        if option == hub_name:
            advice = f"name a model of the hub without hf://, as {name}"
        raise UsageError(
            f"{option} hf://{name}: hf:// is for text to pre-train on and for GLUE (hf://nyu-mll/glue); {advice}"
        )


def check_input(words: list[str]) -> None:
    """See that no text stands where `electra predict` takes options and the name of a file.

    Raises:
        UsageError: one does.
    """
    for before, word in zip(["", *words], words, strict=False):
        source = word.removeprefix("--input=")
        named = source != word or before == "--input"
        is_text = named and not (Path(source).suffix or Path(source).exists() or source.startswith(("-", "hf://")))
        is_value = before.startswith("--") and "=" not in before
        if is_text or not (is_value or word.startswith("-")):
            raise UsageError(
                f"{shlex.quote(source)}: {'no such file' if named else 'is no option'}; texts are read from a file, "
                f"--input FILE, or from standard input: echo {shlex.quote(source)} | electra predict --model MODEL --input -"
            )
