"""The `TaskSpec` of WNLI by candidate antecedents, and its baselines, which are those of text classification."""

import numpy as np

from electra.finetuning.classification.baselines import score_baselines
from electra.finetuning.classification.glue import build_glue_task, list_data_folders
from electra.finetuning.classification.task import LabeledTexts, TextClassification
from electra.finetuning.config import FinetuneConfig
from electra.finetuning.task import HuggingFaceHead, TaskSpec
from electra.finetuning.wnli.task import WnliCandidates, load_pretrained_head, read_pairs
from electra.model.checkpoints import Pretrained
from electra.text.tokenizer import Tokenizer


def build_wnli_candidates(
    config: FinetuneConfig, tokenizer: Tokenizer, pretrained: Pretrained, max_length: int
) -> WnliCandidates:
    """Build the task over GLUE's WNLI, with the head of the pre-trained discriminator."""
    texts = build_glue_task("wnli", config, tokenizer, pretrained, max_length)
    splits = {
        split: read_pairs(texts.read(split), split)
        for split in ("train", *texts.scored_splits, *texts.predicted_splits)
    }
    weights = None if config.from_scratch else load_pretrained_head(pretrained)
    return WnliCandidates(splits, tokenizer, weights, max_length)


def score_wnli_baselines(task: WnliCandidates, split: str) -> dict[str, dict[str, float]]:
    """Fit the majority class and the linear model to the training pairs, and compute their accuracies on a split."""

    def read(split: str) -> LabeledTexts:
        pairs = task.get_pairs(split)
        labels = np.array([pair.label for pair in pairs])
        return LabeledTexts([pair.premise for pair in pairs], [pair.hypothesis for pair in pairs], labels)

    texts = TextClassification(task.name, "classification", ("0", "1"), ("accuracy",), read, task.tokenizer)
    return score_baselines(texts, split)


WNLI_CANDIDATES = TaskSpec(
    build=build_wnli_candidates,
    options=frozenset({"data", "skip_bad_rows"}),
    reads_hub=True,
    list_data_folders=lambda data: list_data_folders("wnli", data),
    score_baselines=score_wnli_baselines,
    head="replaced-token",
    export=lambda head, settings: HuggingFaceHead("replaced-token", head.state_dict()),
)
