"""Initial values of the parameters, and initial attention."""

import math
from dataclasses import replace

import pytest
import torch
from support.errors import raises
from support.tiny_models import model
from torch import Tensor, nn

from electra.errors import UsageError
from electra.model.encoder import Encoder, EncoderConfig
from electra.model.initialization import initialize, initialize_attention
from electra.presets import tiny
from electra.pretraining.build import build_spec
from electra.pretraining.objectives.networks import Discriminator, GeneratorConfig, MaskedLM
from electra.pretraining.objectives.spec import Vocabulary
from electra.pretraining.unused_options import find_unused_options

SIZES = EncoderConfig(
    vocab_size=500,
    embedding_size=128,
    hidden_size=128,
    num_layers=2,
    num_heads=4,
    ffn_size=64,
    max_positions=32,
    attention_initializer="neighbors",
)


def expected_start(name: str, p: torch.Tensor, std: float, embedding_std: float | None) -> tuple[float, float]:
    """Return the standard deviation and the largest absolute value of a parameter's initial values in the original code."""
    if name.endswith("norm.weight"):
        return 0.0, 1.0
    if name.endswith("bias"):
        return 0.0, 0.0
    if name.endswith(("project.weight", "score.weight")):
        limit = math.sqrt(6 / sum(p.shape))
        return limit / math.sqrt(3), limit
    if embedding_std is not None and "embeddings" in name:
        std = embedding_std
    return std * 0.8796, 2 * std  # a normal distribution truncated at two standard deviations has 0.88 of the deviation


@pytest.mark.slow
@pytest.mark.parametrize("stds", [(0.02, None), (0.1, None), (0.1, 0.02)])
@pytest.mark.parametrize("network", [Discriminator, MaskedLM])
def test_initial_values(network, stds) -> None:
    torch.manual_seed(0)
    big = EncoderConfig(vocab_size=2000, embedding_size=64, hidden_size=256, num_layers=1, num_heads=4, ffn_size=512)
    module = network(big)
    for p in module.parameters():
        p.data.fill_(7.0)
    initialize(module, *stds)
    for name, p in module.named_parameters():
        deviation, largest = expected_start(name, p, *stds)
        assert p.abs().max() <= largest + 1e-7, name
        assert p.abs().max() >= 0.9 * largest, name
        assert float(p.detach().std(correction=0)) == pytest.approx(deviation, rel=0.1, abs=1e-9), name


def attention_of_random_tokens(encoder: Encoder, layer: int) -> Tensor:
    """Return the attention probabilities [heads, queries, keys] of a layer on its first input, as a mean over sequences."""
    config = encoder.config
    ids = torch.randint(config.vocab_size, (200, config.max_positions))
    x = encoder.embed(ids, torch.zeros_like(ids))
    heads = (config.num_heads, config.hidden_size // config.num_heads)
    q, k, _ = (
        part.unflatten(-1, heads).transpose(1, 2) for part in encoder.layers[layer].attention.qkv(x).chunk(3, -1)
    )
    return (q @ k.mT / math.sqrt(heads[1])).softmax(-1).mean(0)


@torch.no_grad()
@pytest.mark.parametrize("hidden_size", [128, 256])
@pytest.mark.parametrize("layer", [0, 1])
def test_heads_attend_to_their_neighbors(hidden_size: int, layer: int) -> None:
    torch.manual_seed(0)
    encoder = Encoder(replace(SIZES, hidden_size=hidden_size, dropout=0.0))
    initialize(encoder, 0.1, 0.02)
    initialize_attention(encoder)
    attention = attention_of_random_tokens(encoder, layer)
    for head, distance in enumerate((-1, 1, -2, 2)):
        with_neighbor = range(max(0, -distance), 32 - max(0, distance))
        for query in with_neighbor:
            assert attention[head, query].argmax() == query + distance
            assert attention[head, query].max() > 4 / 32


@torch.no_grad()
def test_positions_have_the_deviation_of_words() -> None:
    torch.manual_seed(0)
    encoder = Encoder(SIZES)
    initialize(encoder, 0.1, 0.02)
    initialize_attention(encoder)
    assert float(encoder.embeddings.position.weight.std()) == pytest.approx(0.02, rel=0.02)


def test_random_attention_changes_nothing() -> None:
    torch.manual_seed(0)
    encoder = Encoder(replace(SIZES, attention_initializer="random"))
    initialize(encoder)
    before = {name: tensor.clone() for name, tensor in encoder.state_dict().items()}
    initialize_attention(encoder)
    for name, tensor in encoder.state_dict().items():
        assert torch.equal(tensor, before[name]), name


@pytest.mark.parametrize("part", ["layers", "embeddings"])
def test_architectures_without_attention_or_positions_are_rejected(part: str) -> None:
    encoder = Encoder(SIZES)
    setattr(encoder, part, nn.ModuleList([nn.Identity()]))
    with raises(
        UsageError, "conflicting-options", "model.attention_initializer neighbors", "model.architecture electra"
    ):
        initialize_attention(encoder)


def test_embeddings_narrower_than_the_number_of_heads_are_rejected() -> None:
    with raises(UsageError, "conflicting-options", "model.embedding_size 4", 4):
        initialize_attention(Encoder(replace(SIZES, embedding_size=4)))
    with raises(UsageError, "conflicting-options", "model.attention_initializer neighbors"):
        model(encoder=SIZES, generator=GeneratorConfig(size=1 / 32, heads=1.0))  # heads of one value


@torch.no_grad()
@pytest.mark.parametrize("tying", ["embeddings", "none"])
@pytest.mark.parametrize("hidden_size", [128, 256])
def test_both_networks_of_an_objective_attend_to_neighbors(hidden_size: int, tying: str) -> None:
    """A generator narrower than the embeddings reads some of the discriminator's positions, which stay as they are."""
    sizes = replace(SIZES, hidden_size=hidden_size, dropout=0.0)
    network = model(encoder=sizes, generator=GeneratorConfig(size=0.25, tying=tying, initializer_range=0.2))
    assert network.generator is not None
    discriminator, generator = network.target.network.encoder, network.generator.encoder
    interior = torch.arange(4, 28)
    for encoder, least in ((discriminator, 0.9), (generator, 0.7)):
        attention = attention_of_random_tokens(encoder, layer=1)
        for head, distance in zip(attention, (-1, 1, -2, 2), strict=False):
            found = head.argmax(-1)[interior] == interior + distance
            assert float(found.float().mean()) >= least
        assert float(encoder.embeddings.position.weight.std()) == pytest.approx(0.02, rel=0.02), (
            "not the generator's range"
        )


def test_initial_weights_replace_the_initial_attention() -> None:
    """The positions of `--init` are no sinusoids, so that heads of a new generator could not find neighbors by them."""
    config = replace(tiny(), model=replace(tiny().model, attention_initializer="neighbors"))
    vocabulary, unigrams = Vocabulary(500, 4, (0, 2, 3, 4)), torch.ones(500, dtype=torch.long)
    assert build_spec(config, vocabulary, unigrams).main.attention_initializer == "neighbors"
    continued = replace(config, init="model")
    assert build_spec(continued, vocabulary, unigrams).main.attention_initializer == "random"
    (message,) = find_unused_options(["model.attention_initializer"], continued)
    assert "--init" in message
