"""Inference of sentence vectors: the saved task, its inputs and vectors."""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from jaxtyping import Float
from pydantic import Field
from torch import nn

from electra.config.checks import check_choice
from electra.errors import DataError
from electra.external import format_count
from electra.finetuning.batching import EncodedExamples
from electra.finetuning.classification.inference import Text, check_pairs, encode_pairs, parse_texts
from electra.finetuning.config import MIN_LENGTH
from electra.finetuning.embedding.heads import EmbeddingHead
from electra.finetuning.embedding.sentence_transformers import POOLING_MODES
from electra.finetuning.readers.inputs import get_text, is_table, read_lines, read_records
from electra.finetuning.task import Outputs, Prediction, PredictOptions, Values
from electra.model.encoder import EncoderConfig
from electra.text.lines import get_row_id
from electra.text.tokenizer import Tokenizer

log = logging.getLogger(__name__)

COLUMN = "sentence"
"""Default column of the text in tables, as for other models."""


@dataclass(frozen=True)
class SavedEmbedding:
    """Vectors of texts; implements `task.SavedTask`."""

    task: str
    max_length: Annotated[int, Field(ge=MIN_LENGTH)]
    pooling: str = "mean"
    """A key of `POOLING_MODES`."""
    normalize: bool = True

    def __post_init__(self) -> None:
        check_choice("pooling", self.pooling, POOLING_MODES)

    def build_head(self, encoder: EncoderConfig, kind: str) -> nn.Module:
        """See `task.SavedTask`."""
        return EmbeddingHead(encoder.hidden_size, self.pooling, normalize=self.normalize)

    def read_file(self, file: str, options: PredictOptions) -> Iterator[Text]:
        """Yield lines, in which a tab has no meaning, or rows of a table."""
        if is_table(file):
            for number, (place, record) in enumerate(read_records(file, "")):
                text = get_text(record, options.text or COLUMN, place, " (see --text)")
                yield Text(get_row_id(record) or str(number), text, None, place)
            return
        for number, (place, line) in enumerate(read_lines(file, "a text in each")):
            yield Text(str(number), line, None, place)

    def read_values(self, values: Values, options: PredictOptions) -> Iterator[Text]:
        """Yield texts from strings, or mappings with the column of a table."""
        return check_pairs(parse_texts(values, options.text or COLUMN, None), False)

    def predict(
        self,
        examples: list[Text],
        tokenizer: Tokenizer,
        compute: Callable[[EncodedExamples], Outputs],
        options: PredictOptions,
    ) -> list[Prediction]:
        """Compute the `vector` of each text. Logs a warning if texts are truncated at `max_length` tokens."""
        texts, places = [text.first for text in examples], [text.place for text in examples]
        outputs = compute(encode_texts(tokenizer, texts, places, self.max_length))
        return [
            {"id": text.id, "vector": output["vectors"][0].tolist()}
            for text, output in zip(examples, outputs, strict=True)
        ]


def encode_texts(tokenizer: Tokenizer, texts: list[str], places: Sequence[str], max_length: int) -> EncodedExamples:
    """Tokenize texts as `[CLS] a [SEP]` of at most `max_length` tokens, with a warning if some are truncated.

    Raises:
        DataError: a text has no tokens; the message has its place.
    """
    input_ids, segment_a, truncated = encode_pairs(tokenizer, texts, None, max_length)
    if (empty := next((i for i, ids in enumerate(input_ids) if len(ids) == 2), None)) is not None:
        raise DataError("no-tokens", f"{places[empty]}: a text without tokens has no vector; correct or remove it")
    if truncated:
        log.warning(
            f"{format_count(truncated, 'text')} from {places[0]} on cut at {max_length} tokens",
            extra={"code": "truncated"},
        )
    return EncodedExamples(input_ids, segment_a, {}, {"cut": truncated})


def stack_vectors(outputs: Outputs) -> Float[np.ndarray, "N G H"]:
    """Stack the vectors of the texts of all examples."""
    return np.stack([output["vectors"] for output in outputs])
