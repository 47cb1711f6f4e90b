"""The table of tasks, and functions that look up a task and check its options."""

from electra.config.checks import check_local
from electra.errors import UsageError
from electra.finetuning.classification.glue import AX, GLUE, build_glue_spec
from electra.finetuning.classification.table import TABLE
from electra.finetuning.config import FinetuneConfig
from electra.finetuning.embedding.task import EMBEDDING
from electra.finetuning.multiple_choice.task import MULTIPLE_CHOICE
from electra.finetuning.qa.task import MRQA, SQUAD1, SQUAD2
from electra.finetuning.tagging.task import CHUNKS, ENTITIES, OWN_TAGS, PARTS_OF_SPEECH
from electra.finetuning.task import Task, TaskSpec
from electra.finetuning.wnli.spec import WNLI_CANDIDATES
from electra.model.checkpoints import Pretrained
from electra.text.tokenizer import Tokenizer

TASKS: dict[str, TaskSpec] = {
    **{name: build_glue_spec(name) for name in GLUE},
    "ax": AX,
    "wnli-candidates": WNLI_CANDIDATES,
    "squad1": SQUAD1,
    "squad2": SQUAD2,
    "mrqa": MRQA,
    "chunk": CHUNKS,
    "ner": ENTITIES,
    "pos": PARTS_OF_SPEECH,
    "table": TABLE,
    "multiple-choice": MULTIPLE_CHOICE,
    "tagging": OWN_TAGS,
    "embedding": EMBEDDING,
}
"""Every task by its name on the command line and in `task.json`. A program may add its own."""

TASK_OPTIONS = (
    *("data", "train", "dev", "test"),
    *("text", "text_pair", "label", "kind"),
    *("skip_bad_rows", "pooling", "swap_pairs", "span", "class_weights", "embedding"),
)
"""Fields of `FinetuneConfig` that not every task uses; see `TaskSpec.options`."""


def find_task(name: str) -> TaskSpec:
    """Return the spec of a task.

    Raises:
        UsageError: there is no task of this name.
    """
    if not name:
        raise UsageError("missing-task", f"no task is named; there are {', '.join(TASKS)}")
    if name not in TASKS:
        raise UsageError("unknown-task", f"there is no task {name!r}; there are {', '.join(TASKS)}")
    return TASKS[name]


def check_options(config: FinetuneConfig) -> None:
    """Check that the task exists and that no option is given that it does not use.

    Raises:
        UsageError: there is no such task, an option has no meaning for it, or --data is given together with single files.
    """
    spec, defaults = find_task(config.task), FinetuneConfig()
    if not spec.reads_hub:
        check_local({"--data": config.data})
    for name in TASK_OPTIONS:
        value = getattr(config, name)
        if name not in spec.options and value is not False and value != getattr(defaults, name):
            raise UsageError("meaningless-option", f"--{name.replace('_', '-')} has no meaning for {config.task}")
    if config.data and (config.train or config.dev or config.test):
        raise UsageError(
            "conflicting-options", "give either --data, a folder, or single files with --train, --dev and --test"
        )


def build_task(config: FinetuneConfig, tokenizer: Tokenizer, pretrained: Pretrained) -> Task:
    """Build the task of a configuration, with its data, for a model that starts from `pretrained`.

    Raises:
        UsageError: an option that the task needs is missing, or --max-length is more than the positions of the model.
        DataError: the data is missing or malformed.
    """
    spec, positions = find_task(config.task), pretrained.config.max_positions
    if config.max_length is not None and config.max_length > positions:
        raise UsageError(
            "longer-than-model", f"--max-length {config.max_length} is more than the {positions} positions of the model"
        )
    return spec.build(config, tokenizer, pretrained, config.max_length or min(spec.recipe.max_length, positions))
