"""The whole configuration of a pre-training run: every option of its parts."""

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from electra.config.hints import check_local
from electra.config.parser import Parser, check_limits, load, parser_for
from electra.data.loader import LengthWarmup
from electra.data.prepare import check_usage
from electra.errors import UsageError
from electra.model.encoder import EncoderConfig
from electra.pretraining.objectives.masking import MaskingConfig
from electra.pretraining.objectives.networks import GeneratorConfig
from electra.pretraining.objectives.spec import OBJECTIVES
from electra.pretraining.objectives.targets import ContrastConfig
from electra.pretraining.validation import check_generator, check_procedure, check_task
from electra.runtime import RuntimeConfig
from electra.train.loop import Recipe, TrainingConfig
from electra.train.optimizer import OptimizerConfig
from electra.train.schedule import Budget, ScheduleConfig


@dataclass(frozen=True)
class PretrainConfig:
    """A pre-training run."""

    text: tuple[str, ...] = ()
    """Files, folders, hf://owner/name, or builtin."""
    data: str | None = None
    """Directory that `electra prepare` wrote, instead of text."""
    tokenizer: str | None = None
    """Tokenizer directory or vocab.txt; by default one is trained on the text."""
    init: str | None = None
    """Hugging Face discriminator to continue from (or a folder with discriminator/ and generator/); sizes are its own."""
    preset: str = "small"
    """Sizes and hyperparameters to start from."""
    objective: str = "electra"
    """Pre-training task: electra; or what the paper compares it with (section 3.5): electra-15, electra-other-15,
    replace-mlm, all-tokens-mlm, and mlm (BERT's)."""
    procedure: Literal["joint", "two-stage", "two-stage-scratch"] = "joint"
    """Generator and discriminator learn together; or first the generator, then, with the generator frozen, the
    discriminator for as many steps, from the generator's weights or from scratch (section 3.2). A generator that is
    frozen has embeddings of its own, whatever generator.tying says."""
    steps: int | None = 1_000_000
    """Number of updates, if neither hours nor FLOPs are set."""
    hours: float | None = None
    """Hours of training instead of a number of updates; the learning rate follows the clock."""
    flops: float | None = None
    """Floating point operations of training, as Appendix E counts them, instead of a number of updates."""
    seq_len: int = 128
    """Tokens of the longest example."""
    documents: Literal["blank-line", "file", "line"] = "blank-line"
    """What ends a document in a .txt file."""
    text_field: str = "text"
    """Field of .jsonl, .parquet and hub data sets that holds the text."""
    encoding_errors: Literal["strict", "replace"] = "strict"
    """Stop at bytes that are not UTF-8, or replace them."""
    cased: bool = False
    """Keep capital letters (when a tokenizer is trained)."""
    keep_accents: bool = False
    """Keep accents (when a tokenizer is trained)."""
    workers: int | None = None
    """Processes that prepare; by default one a core."""
    seed: int = 0
    """Decides initial weights, data order, masks, samples and dropout."""
    loss_weight: float | None = None
    """Weight of the main network's loss beside the generator's; by default the objective's (electra: 50). An objective
    without a generator (mlm) has one loss, which is not weighted."""
    copy: bool | None = None
    """Objective all-tokens-mlm: with the copy mechanism, which is its default."""
    model: EncoderConfig = field(default_factory=EncoderConfig)
    """The encoder that is wanted."""
    generator: GeneratorConfig = field(default_factory=GeneratorConfig)
    """The generator beside it."""
    masking: MaskingConfig = field(default_factory=MaskingConfig)
    """Which tokens are chosen."""
    contrast: ContrastConfig = field(default_factory=ContrastConfig)
    """A sentence-level task beside (Appendix H)."""
    length_warmup: LengthWarmup = field(default_factory=LengthWarmup)
    """Short sequences first."""
    training: TrainingConfig = field(default_factory=TrainingConfig)
    """Batches, logs and checkpoints."""
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    """AdamW."""
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    """The learning rate over time."""
    runtime: RuntimeConfig = field(default_factory=RuntimeConfig)
    """Device and precision."""

    def __post_init__(self) -> None:
        Budget(self.steps, self.hours, self.flops)  # complains if it is none
        check_local({"--data": self.data, "--tokenizer": self.tokenizer, "--init": self.init})
        if self.seed < 0:
            raise UsageError(f"--seed is {self.seed}; it must not be negative")
        check_limits(self, "--", seed=2**63 - 1, loss_weight=10**6)
        check_usage(self.seq_len, self.workers)
        if self.objective not in OBJECTIVES:
            raise UsageError(f"there is no objective {self.objective!r}; there are {', '.join(OBJECTIVES)}")
        if self.seq_len > self.model.max_positions:
            raise UsageError(
                f"--seq-len {self.seq_len} is more than the {self.model.max_positions} positions of the model; "
                f"lower it{'' if self.init else ', or raise --model.max-positions'}"
            )
        if self.length_warmup.steps and self.length_warmup.length >= self.seq_len:
            raise UsageError(
                f"length_warmup.length {self.length_warmup.length} is no shorter than --seq-len {self.seq_len}; "
                "lower it, or leave --length-warmup.steps out"
            )
        if self.length_warmup.steps and self.training.graphs:
            raise UsageError(
                "--training.graphs wants micro-batches of few shapes, and --length-warmup.steps cuts examples into pieces, "
                "of which every batch has another number; leave one of them out"
            )
        if self.loss_weight is not None and not self.loss_weight >= 0:
            raise UsageError(f"--loss-weight is {self.loss_weight}; it must not be negative")
        check_generator(self.objective, self.model, self.generator)
        check_task(self.objective, self.generator, self.masking, self.contrast, bool(self.copy))
        if self.procedure != "joint":
            check_procedure(self.procedure, self.objective, self.generator, self.init)

    @property
    def stage(self) -> int:
        """Which stage of training this configures: 1 for the last of two, whose first is a joint run of its own."""
        return int(self.procedure != "joint")

    def recipe(self) -> Recipe:
        """The part that the training loop is told."""
        budget = Budget(self.steps, self.hours, self.flops)
        return Recipe(budget, self.training, self.optimizer, self.schedule, (self.seed, self.stage))


def options(defaults: PretrainConfig, **about: Any) -> Parser:
    """A parser of all the fields; `about` names the program and describes it."""
    parser = parser_for(PretrainConfig, defaults, skip=["text"], **about)
    parser.add_argument("text", nargs="*", type=str, default=[], help="Files, folders, hf://owner/name, or builtin.")
    return parser


def build(parser: Parser, values: Any) -> PretrainConfig:
    """The configuration out of what `options` parsed."""
    parsed = parser.instantiate(values)
    known = {each.name: parsed[each.name] for each in fields(PretrainConfig)}
    return PretrainConfig(**known | {"text": tuple(known["text"])})


def saved_config(path: Path) -> PretrainConfig:
    """The configuration that a run saved.

    Raises:
        UsageError: no such file, or it has a wrong name or value.
    """
    parser, values = options(PretrainConfig()), load(path)
    try:
        return build(parser, parser.take_plain(values))
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None
