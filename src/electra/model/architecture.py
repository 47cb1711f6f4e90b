"""Architectures: how the parts of an encoder are built, what they cost, and their names in Hugging Face directories."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from torch import nn

from electra.model.layer_flops import attention_flops, embedding_flops, feed_forward_flops
from electra.model.layers import Embeddings, TokenEmbeddings, TransformerLayer


@runtime_checkable
class EncoderOptions(Protocol):
    """The part of `electra.model.encoder.EncoderConfig` that an architecture depends on."""

    @property
    def vocab_size(self) -> int: ...
    @property
    def embedding_size(self) -> int: ...
    @property
    def hidden_size(self) -> int: ...
    @property
    def num_layers(self) -> int: ...
    @property
    def num_heads(self) -> int: ...
    @property
    def ffn_size(self) -> int: ...
    @property
    def max_positions(self) -> int: ...
    @property
    def type_vocab_size(self) -> int: ...
    @property
    def dropout(self) -> float: ...
    @property
    def attention_dropout(self) -> float: ...
    @property
    def layer_norm_eps(self) -> float: ...


@dataclass(frozen=True)
class HuggingFaceClass:
    """A class of transformers: an encoder with a kind of head."""

    name: str
    weights: Mapping[str, tuple[str, ...]]
    """Our names of the head's parameters or modules -> those of the class."""


def build_bert_embeddings(config: EncoderOptions) -> Embeddings:
    """Build BERT's embeddings."""
    return Embeddings(
        config.vocab_size,
        config.embedding_size,
        config.max_positions,
        config.type_vocab_size,
        config.layer_norm_eps,
    )


def bert_embedding_flops(config: EncoderOptions, length: int) -> dict[str, int]:
    """Forward FLOPs of one token in BERT's embeddings and their projection, by part."""
    looked_up = config.vocab_size + length + config.type_vocab_size
    return embedding_flops(config.embedding_size, config.hidden_size, looked_up)


@dataclass(frozen=True)
class Architecture:
    """A kind of encoder. Several names on the right of a table mean that our parameter is their concatenation.

    An architecture brings its embeddings, its layers and a module after the last layer. `EncoderConfig` has the same fields
    for all. What else a layer depends on, such as a window or a base of rotary positions, is bound in `build_layer`; each of
    its values is a row, with `config_values` of its own. Common to all are the projection from the embedding size to the
    hidden size, one kind of layer per encoder, the padded and packed layouts, and the heads of pre-training and fine-tuning.
    """

    build_layer: Callable[[EncoderOptions], nn.Module]
    """A layer; its forward takes hidden states, their layout and optional positions, as `TransformerLayer`'s does."""
    layer_flops: Callable[[EncoderOptions, int], dict[str, int]]
    """Forward FLOPs of one token in a layer, by part, in a sequence of that many tokens."""
    model_type: str
    """In config.json; also the prefix of the encoder's weights."""
    config_names: Mapping[str, str]
    """Fields of `EncoderConfig` -> keys of config.json, any; transformers keeps keys that it does not know."""
    encoder_weights: Mapping[str, tuple[str, ...]]
    """Our names of all of the encoder's parameters or modules -> Hugging Face's; {i} is the number of the layer."""
    classes: Mapping[str, HuggingFaceClass]
    """Kind of head -> class; "none" is the encoder alone."""
    output_embeddings: str
    """Weights of a masked LM's product with the vocabulary, in directories that hold them; they are the token embeddings."""
    readable_types: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Other model types whose encoder is this one with an embedding size equal to the hidden size: starts of their weight
    names -> starts of ours. Directories of these types are read, not written."""
    build_embeddings: Callable[[EncoderOptions], TokenEmbeddings] = build_bert_embeddings
    """The embeddings; their forward takes token ids and token type ids, [B, L], and returns [B, L, E]."""
    build_final: Callable[[EncoderOptions], nn.Module] = lambda config: nn.Identity()
    """`Encoder.final`, a module on the hidden states after the last layer in any layout, such as a LayerNorm."""
    other_flops: Callable[[EncoderOptions, int], dict[str, int]] = bert_embedding_flops
    """As `layer_flops`, of the embeddings, their projection and the module after the last layer. The part "embedding look-up"
    is free on real hardware."""
    check_config: Callable[[EncoderOptions], None] = lambda config: None
    """Raises a `UsageError` for sizes that the parts cannot have."""
    config_values: Mapping[str, str | int | float] = field(default_factory=dict)
    """Keys of config.json -> their values, beside or instead of `electra.model.hf_config.COMMON_VALUES`. They are written; of
    several rows with a `model_type`, the first one whose values a directory has reads it."""

    def rename_weight(self, name: str) -> str:
        """Return the name of a weight in this architecture's classes, for a name in a directory of any readable type."""
        starts = [pair for names in self.readable_types.values() for pair in names.items() if name.startswith(pair[0])]
        for theirs, ours in starts:
            name = ours + name.removeprefix(theirs)
        # Old conversions from TensorFlow name the two vectors of a LayerNorm so.
        return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")

    def find_head(self, class_name: str) -> str | None:
        """Find the kind of head of a class; None for a class that is not in the table."""
        return next((head for head, each in self.classes.items() if each.name == class_name), None)


def build_transformer_layer(config: EncoderOptions) -> TransformerLayer:
    """Build BERT's layer."""
    return TransformerLayer(
        config.hidden_size,
        config.ffn_size,
        config.num_heads,
        config.dropout,
        config.attention_dropout,
        config.layer_norm_eps,
    )


def transformer_layer_flops(config: EncoderOptions, length: int) -> dict[str, int]:
    """Forward FLOPs of one token in BERT's layer, by part."""
    return {
        "attention": attention_flops(config.hidden_size, config.num_heads, length),
        "feed-forward": feed_forward_flops(config.hidden_size, config.ffn_size),
    }


ELECTRA = Architecture(
    build_transformer_layer,
    transformer_layer_flops,
    model_type="electra",
    config_names={
        "initializer_range": "initializer_range",
        "embedding_initializer_range": "embedding_initializer_range",
        "vocab_size": "vocab_size",
        "embedding_size": "embedding_size",
        "hidden_size": "hidden_size",
        "num_layers": "num_hidden_layers",
        "num_heads": "num_attention_heads",
        "ffn_size": "intermediate_size",
        "max_positions": "max_position_embeddings",
        "type_vocab_size": "type_vocab_size",
        "dropout": "hidden_dropout_prob",
        "attention_dropout": "attention_probs_dropout_prob",
        "layer_norm_eps": "layer_norm_eps",
    },
    encoder_weights={
        "embeddings.word.weight": ("embeddings.word_embeddings.weight",),
        "embeddings.position.weight": ("embeddings.position_embeddings.weight",),
        "embeddings.token_type.weight": ("embeddings.token_type_embeddings.weight",),
        "embeddings.norm": ("embeddings.LayerNorm",),
        "project": ("embeddings_project",),
        "layers.{i}.attention.qkv": (
            "encoder.layer.{i}.attention.self.query",
            "encoder.layer.{i}.attention.self.key",
            "encoder.layer.{i}.attention.self.value",
        ),
        "layers.{i}.attention.output": ("encoder.layer.{i}.attention.output.dense",),
        "layers.{i}.attention_norm": ("encoder.layer.{i}.attention.output.LayerNorm",),
        "layers.{i}.ffn.up": ("encoder.layer.{i}.intermediate.dense",),
        "layers.{i}.ffn.down": ("encoder.layer.{i}.output.dense",),
        "layers.{i}.ffn_norm": ("encoder.layer.{i}.output.LayerNorm",),
    },
    classes={
        "none": HuggingFaceClass("ElectraModel", {}),
        "replaced-token": HuggingFaceClass(
            "ElectraForPreTraining",
            {
                "head.dense": ("discriminator_predictions.dense",),
                "head.score": ("discriminator_predictions.dense_prediction",),
            },
        ),
        "masked-lm": HuggingFaceClass(
            "ElectraForMaskedLM",
            {
                "head.dense": ("generator_predictions.dense",),
                "head.norm": ("generator_predictions.LayerNorm",),
                "head.bias": ("generator_lm_head.bias",),
            },
        ),
        "sequence-classification": HuggingFaceClass(
            "ElectraForSequenceClassification",
            {"head.dense": ("classifier.dense",), "head.project": ("classifier.out_proj",)},
        ),
        "multiple-choice": HuggingFaceClass(
            "ElectraForMultipleChoice",
            {"head.dense": ("sequence_summary.summary",), "head.project": ("classifier",)},
        ),
        "token-classification": HuggingFaceClass("ElectraForTokenClassification", {"head.output": ("classifier",)}),
        "question-answering": HuggingFaceClass("ElectraForQuestionAnswering", {"head.output": ("qa_outputs",)}),
        # transformers has no class with this head; its encoder ignores the weights.
        "energy": HuggingFaceClass(
            "ElectraModel",
            {"head.dense": ("energy_predictions.dense",), "head.score": ("energy_predictions.dense_prediction",)},
        ),
    },
    output_embeddings="generator_lm_head.weight",
    readable_types={
        "bert": {
            "bert.": "electra.",
            "cls.predictions.transform.": "generator_predictions.",
            "cls.predictions.bias": "generator_lm_head.bias",
            "cls.predictions.decoder.weight": "generator_lm_head.weight",
        }
    },
)
ARCHITECTURES: dict[str, Architecture] = {"electra": ELECTRA}
"""Architectures by name."""
