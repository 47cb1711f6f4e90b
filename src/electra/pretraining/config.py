"""The whole configuration of a pre-training run: every option of its parts."""

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Literal

from electra.config.checks import check_choice, check_local, check_range
from electra.config.options import choice_field
from electra.config.resolve import read_config, resolve
from electra.data.deduplication import THRESHOLD, Method, check_deduplication
from electra.data.loader import BatchWarmup, LengthWarmup
from electra.data.prepare import check_usage
from electra.data.sources import check_mixing
from electra.errors import UsageError
from electra.model.encoder import EncoderConfig
from electra.pretraining.objectives.catalog import OBJECTIVES
from electra.pretraining.objectives.corruptions.masking import MaskingConfig
from electra.pretraining.objectives.model import GENERATOR_PREFIX
from electra.pretraining.objectives.networks import GeneratorConfig
from electra.pretraining.objectives.targets.corrective import CorrectiveConfig
from electra.pretraining.objectives.targets.replaced_tokens import ContrastConfig, TokenPredictionConfig
from electra.pretraining.objectives.targets.sequence_contrast import SequenceContrastConfig
from electra.pretraining.stages.procedures import PROCEDURES
from electra.pretraining.validation.generators import check_changing_values, check_generator, check_samples
from electra.pretraining.validation.objectives import check_coco_lm, check_noise, check_task
from electra.pretraining.validation.training import (
    check_batch_warmup,
    check_exports,
    check_initial_generator,
    check_procedure,
    check_stem_options,
)
from electra.runtime.setup import RuntimeConfig
from electra.text.subwords.training import TokenizerConfig
from electra.train.config import Recipe, TrainingConfig
from electra.train.optimizer import OptimizerConfig
from electra.train.schedule import Budget, ScheduleConfig
from electra.train.trackers import TRACKERS, check_trackers

BUDGETS = tuple(each.name for each in fields(Budget))
"""Options of which one sets the length of training."""


@dataclass(frozen=True)
class PretrainConfig:
    """A pre-training run."""

    text: tuple[str, ...] = ()
    """Files, folders, hf://owner/name, or builtin."""
    data: str | None = None
    """Directory that `electra prepare` wrote, instead of text."""
    tokenizer: str | None = None
    """Tokenizer directory, tokenizer.json, vocab.txt, or owner/name or owner/name@revision of the hub; by default one is
    trained on the text."""
    init: str | None = None
    """Model to continue from, whose sizes are used: a Hugging Face discriminator, a folder with discriminator/ and generator/,
    owner/name or owner/name@revision of the hub, or a TensorFlow checkpoint of the original code. From a masked language
    model, such as a BERT, the encoder is used, and the generator starts from it too if it has its size."""
    init_generator: str | None = None
    """Masked language model to start the generator from, with the vocabulary of init: named as init is, of another place."""
    stem: str | None = None
    """Run with schedule.kind wsd and a number of steps, to continue from the start of its decay with other steps or another
    schedule.decay; all else is as in that run, whose data is read."""
    preset: str = "small"
    """Sizes and hyperparameters to start from."""
    objective: str = choice_field("electra", lambda: OBJECTIVES)
    """Pre-training task: electra; or what the paper compares it with (section 3.5): electra-15, electra-other-15,
    replace-mlm, all-tokens-mlm, and mlm (BERT's); or later work: corrective-lm (COCO-LM, Meng et al., 2021), electric and
    electric-unigram (Electric, Clark et al., 2020: energies of tokens, with noise of a generator or by frequency)."""
    procedure: str = choice_field("joint", lambda: PROCEDURES)
    """Train generator and discriminator jointly; or first the generator, then, with the generator frozen, the
    discriminator for as many steps, from the generator's weights or from scratch (section 3.2). A frozen generator
    has embeddings of its own, whatever the value of generator.tying. masked-lm-first: first a masked language model of
    the discriminator's size, then both networks jointly, the discriminator from its weights, the generator too if it has
    that size."""
    stage_one_share: float | None = None
    """Share of the budget for the first stage of a procedure with two; by default both have as many steps."""
    steps: int | None = 1_000_000
    """Number of updates, if neither hours nor FLOPs are set."""
    hours: float | None = None
    """Hours of training instead of a number of updates; the learning rate schedule follows the elapsed time."""
    flops: float | None = None
    """Training FLOPs, counted as in Appendix E, instead of a number of updates."""
    weights: tuple[str, ...] = ()
    """How often training reads each of several sources, as in wiki=2 law=1: two examples of wiki for each one of law. A source
    is named by its path or the last part of it. By default, an epoch has every example once."""
    mix_temperature: float | None = None
    """Weights by size instead: n^(1/mix_temperature) for a source of n training examples, as in multilingual BERT. 1 is
    proportional to size; higher values are closer to equal weights."""
    seq_len: int = 128
    """Tokens of the longest example."""
    documents: Literal["blank-line", "file", "line"] = "blank-line"
    """Separator of documents in a .txt file."""
    text_field: str = "text"
    """Field of records, tables and hub data sets that holds the text."""
    encoding_errors: Literal["strict", "replace"] = "strict"
    """Stop at bytes that are not UTF-8 (strict), or replace them."""
    deduplicate: Method = "none"
    """Drop documents that equal an earlier one (exact), or are similar to one (minhash, needs the extra dedup)."""
    dedup_threshold: float = THRESHOLD
    """Jaccard similarity from which minhash drops a document."""
    cased: bool = False
    """Keep capital letters (when a tokenizer is trained)."""
    keep_accents: bool = False
    """Keep accents (when a tokenizer is trained)."""
    workers: int | None = None
    """Processes that prepare the data; by default one per core."""
    seed: int = 0
    """Seed of initial weights, data order, masks, samples and dropout."""
    log_to: tuple[str, ...] = choice_field(("tensorboard",), lambda: TRACKERS)
    """Trackers that receive the metrics, beside metrics.jsonl: tensorboard; wandb or trackio, if installed."""
    export_at: tuple[str, ...] = ()
    """Amounts of training after which the networks are also saved in RUN/exports, such as 500steps, 1Mtokens or 1e13flops."""
    export_every: str | None = None
    """The same after each such amount of training."""
    loss_weight: float | None = None
    """Weight of the discriminator's loss relative to the generator's; by default the objective's (electra: 50). An
    objective without a generator keeps its own."""
    copy: bool | None = None
    """Objectives all-tokens-mlm and corrective-lm: use the copy mechanism; by default they do."""
    model: EncoderConfig = field(default_factory=EncoderConfig)
    """The encoder."""
    generator: GeneratorConfig = field(default_factory=GeneratorConfig)
    """The generator."""
    masking: MaskingConfig = field(default_factory=MaskingConfig)
    """Which tokens are masked."""
    contrast: ContrastConfig = field(default_factory=ContrastConfig)
    """An additional sentence-level loss (Appendix H)."""
    token_prediction: TokenPredictionConfig = field(default_factory=TokenPredictionConfig)
    """Prediction of tokens by the discriminator too."""
    sequence_contrast: SequenceContrastConfig = field(default_factory=SequenceContrastConfig)
    """Similar vectors for two views of a sequence (COCO-LM)."""
    corrective: CorrectiveConfig = field(default_factory=CorrectiveConfig)
    """Objective corrective-lm."""
    length_warmup: LengthWarmup = field(default_factory=LengthWarmup)
    """Train on short sequences first."""
    batch_warmup: BatchWarmup = field(default_factory=BatchWarmup)
    """Train on small batches first."""
    training: TrainingConfig = field(default_factory=TrainingConfig)
    """Batches, logging and checkpoints."""
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    """The optimizer, and an average of the weights."""
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    """The learning rate over time."""
    runtime: RuntimeConfig = field(default_factory=RuntimeConfig)
    """Device and precision."""

    def __post_init__(self) -> None:
        Budget(self.steps, self.hours, self.flops)  # raises an error unless exactly one is set
        paths = {"--data": self.data, "--tokenizer": self.tokenizer, "--stem": self.stem}
        check_local({**paths, "--init": self.init, "--init-generator": self.init_generator})
        check_local({"--generator.samples": self.generator.samples})
        check_range(self, "", "seed", at_least=0, at_most=2**63 - 1)
        check_range(self, "", "loss_weight", at_least=0, at_most=10**6)
        check_usage(self.seq_len, self.workers)
        check_deduplication(self.deduplicate, self.dedup_threshold)
        check_mixing(self.weights, self.mix_temperature)
        check_range(self, "", "stage_one_share", above=0, below=1)
        check_choice("--objective", self.objective, OBJECTIVES)
        check_choice("--procedure", self.procedure, PROCEDURES)
        check_trackers(self.log_to)
        if self.seq_len > self.model.max_positions:
            raise UsageError(
                "longer-than-model",
                f"--seq-len {self.seq_len} is more than the {self.model.max_positions} positions of the model; "
                "lower it, or raise --model.max-positions",
            )
        if self.length_warmup.steps and self.length_warmup.length >= self.seq_len:
            raise UsageError(
                "no-length-warmup",
                f"length_warmup.length {self.length_warmup.length} is no shorter than --seq-len {self.seq_len}; "
                "lower it, or leave --length-warmup.steps out",
            )
        if self.length_warmup.steps and self.training.graphs:
            raise UsageError(
                "conflicting-options",
                "--training.graphs needs micro-batches of few shapes, and --length-warmup.steps splits examples into pieces, "
                "whose number varies by batch; leave one of them out",
            )
        check_batch_warmup(self.batch_warmup, self.training.batch_size, self.reason_for_micro_batches)
        check_changing_values(self.objective, self.masking, self.generator, self.training, self.stem)
        check_generator(self.objective, self.model, self.generator)
        check_task(self.objective, self.generator, self.masking, self.contrast, self.token_prediction, bool(self.copy))
        check_coco_lm(self.objective, self.sequence_contrast, self.corrective)
        check_noise(self.objective, self.generator, self.masking)
        check_samples(self.objective, self.generator, self.masking, self.steps)
        check_procedure(self.procedure, self.objective, self.generator, self.init, self.training.freeze)
        check_initial_generator(self.init, self.init_generator, self.objective, self.generator)
        check_stem_options(self.stem, self.text, self.procedure)
        check_exports(self.export_at, self.export_every, self.procedure)

    @property
    def reason_for_micro_batches(self) -> str:
        """Why the loss depends on the micro-batch size; empty if it does not."""
        if self.sequence_contrast.weight:
            return "sequence_contrast.weight is not 0"
        return "training.means is local" if self.training.means == "local" else ""

    @property
    def tokenizer_config(self) -> TokenizerConfig:
        """What a tokenizer is trained to be, if none is given."""
        return TokenizerConfig(self.model.vocab_size, cased=self.cased, keep_accents=self.keep_accents, multiple_of=1)

    @property
    def stage(self) -> int:
        """Index of the training stage that this configures: 1 for the second of two-stage training, otherwise 0."""
        return int(PROCEDURES[self.procedure].stage_one is not None)

    def recipe(self) -> Recipe:
        """The part of the configuration that the training loop uses."""
        budget = Budget(self.steps, self.hours, self.flops)
        factor = self.generator.rate_factor

        def get_rate_factor(name: str) -> float:
            return factor if name.startswith(f"{GENERATOR_PREFIX}.") else 1.0

        seed = (self.seed, self.stage)
        return Recipe(budget, self.training, self.optimizer, self.schedule, seed, get_rate_factor)


def load_saved_config(path: Path) -> PretrainConfig:
    """Load the configuration that a run saved.

    Raises:
        UsageError: no such file, or it has a wrong name or value.
    """
    values = read_config(path, PretrainConfig, "pretrain")
    try:
        return resolve(PretrainConfig(), values, {}, alternatives=BUDGETS)
    except UsageError as error:
        raise UsageError(error.code, f"{path}: {error}") from None
