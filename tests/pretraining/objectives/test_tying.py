"""Weights that generator and discriminator share: a trunk of the first layers, and disentangled embeddings."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from support.tiny_models import ENCODER, VOCAB, batch, model
from torch import Tensor, nn

from electra.model.encoder import EncoderConfig
from electra.model.flops import masked_lm_step_flops
from electra.pretraining.objectives.model import GENERATOR_PREFIX, PretrainingModel
from electra.pretraining.objectives.networks import GeneratorConfig
from electra.pretraining.objectives.targets.replaced_tokens import TokenPredictionConfig
from electra.pretraining.objectives.tying import DisentangledEmbedding

DEEP = replace(ENCODER, num_layers=4)
TRUNK = GeneratorConfig(size=1.0, depth=0.5, tying="trunk")
DISENTANGLED = GeneratorConfig(size=0.5, tying="disentangled")


def compute_gradients(electra: PretrainingModel, loss: str) -> dict[str, Tensor | None]:
    """Return the gradients of one loss by the name of the parameter; None where it does not depend on it."""
    parameters = dict(electra.named_parameters())
    total = electra.train().run(batch()).losses[loss].sum()
    return dict(zip(parameters, torch.autograd.grad(total, list(parameters.values()), allow_unused=True), strict=True))


def set_difference(electra: PretrainingModel) -> DisentangledEmbedding:
    """Give the discriminator's embeddings a difference from the generator's."""
    word = electra.target.network.encoder.embeddings.word
    assert isinstance(word, DisentangledEmbedding)
    word.delta.data.normal_(std=0.1)
    return word


@torch.no_grad()
def test_trunk_is_the_first_layers_of_the_encoder() -> None:
    electra, inputs = model(encoder=DEEP, generator=TRUNK).eval(), batch()
    main = electra.target.network.encoder
    shared = {id(parameter) for parameter in main.parameters()}
    own = {name for name, p in electra.generator.named_parameters() if id(p) not in shared}
    assert {name.partition(".")[0] for name in own} == {"head"}
    assert electra.generator.config.num_layers == 2
    ids, types, mask = inputs.input_ids, inputs.token_type_ids, inputs.attention_mask
    _, _, second, *_ = main.hidden_states(ids, types, mask)
    everywhere = torch.arange(ids.shape[1]).expand_as(ids)
    found = electra.generator(ids, types, mask, everywhere)
    torch.testing.assert_close(found[mask], electra.generator.head(second, main.embeddings.word.weight)[mask])


def test_trunk_is_trained_by_both_losses() -> None:
    electra = model(encoder=DEEP, generator=TRUNK)
    of_generator = {name for name, g in compute_gradients(electra, "generator_loss").items() if g is not None}
    of_discriminator = {name for name, g in compute_gradients(electra, "discriminator_loss").items() if g is not None}
    layers = [f"target.network.encoder.layers.{i}." for i in range(4)]
    assert [any(name.startswith(layer) for name in of_generator) for layer in layers] == [True, True, False, False]
    assert all(any(name.startswith(layer) for name in of_discriminator) for layer in layers)
    assert "target.network.encoder.embeddings.word.weight" in of_generator & of_discriminator
    assert {name.split(".")[2] for name in of_generator - of_discriminator} == {"head"}


@pytest.mark.parametrize("token_prediction", [TokenPredictionConfig(), TokenPredictionConfig(masked=1.0)])
def test_trunk_of_all_layers_equals_the_whole_encoder(token_prediction: TokenPredictionConfig) -> None:
    configs = [GeneratorConfig(size=1.0, tying="trunk", depth=1.0), GeneratorConfig(size=1.0, tying="all")]
    trunk, whole = (model(generator=each, token_prediction=token_prediction) for each in configs)
    assert [name for name, _ in trunk.named_parameters()] == [name for name, _ in whole.named_parameters()]
    losses = []
    for electra in (trunk, whole):
        torch.manual_seed(3)
        losses.append(electra.train().run(batch()).losses)
    for name, loss in losses[0].items():
        assert torch.equal(loss, losses[1][name]), name


def test_token_prediction_uses_a_head_of_its_own_with_a_trunk() -> None:
    """The head of the trunk is for the hidden states of a middle layer."""
    electra = model(encoder=DEEP, generator=TRUNK, token_prediction=TokenPredictionConfig(masked=1.0))
    assert electra.target.masked_lm.head is not electra.generator.head


def test_flops_of_a_trunk_are_those_of_its_layers() -> None:
    trunk, whole = (
        model(encoder=DEEP, generator=replace(TRUNK, depth=depth)).corruption.cost(40, 6).flops for depth in (0.5, 1.0)
    )
    assert trunk == masked_lm_step_flops(replace(DEEP, num_layers=2), 40, 6)
    assert whole == masked_lm_step_flops(DEEP, 40, 6)


@pytest.mark.parametrize("objective", ["electra", "replace-mlm"])
def test_disentangled_losses_train_one_network_each(objective: str) -> None:
    """No weight has gradients of both losses, the embeddings of the generator and the difference from them included."""
    electra = model(objective, generator=DISENTANGLED)
    set_difference(electra)
    word = f"{GENERATOR_PREFIX}.generator.encoder.embeddings.word.weight"
    of_generator = compute_gradients(electra, "generator_loss")
    of_target = compute_gradients(electra, electra.target.loss_name)
    assert of_generator[word].abs().sum() > 0
    assert of_target["target.network.encoder.embeddings.word.delta"].abs().sum() > 0
    for name in of_generator:
        trains = (of_generator[name] is not None, of_target[name] is not None)
        assert trains == ((True, False) if name.startswith(GENERATOR_PREFIX) else (False, True)), name


def test_difference_has_the_gradient_of_plain_embeddings() -> None:
    """Of the sum, with the sum's value, for inputs and for the output layer of a masked language model."""
    electra = model("replace-mlm", generator=DISENTANGLED)
    word = set_difference(electra)
    embeddings, found = electra.target.network.encoder.embeddings, []
    plain = nn.Embedding(VOCAB, ENCODER.embedding_size, _weight=word.weight.detach().clone())
    for module, parameter in ((word, word.delta), (plain, plain.weight)):
        embeddings.word = module
        torch.manual_seed(3)
        loss = electra.train().run(batch()).losses["mlm_loss"].sum()
        found.append((loss, *torch.autograd.grad(loss, [parameter])))
    assert torch.equal(found[0][0], found[1][0])
    torch.testing.assert_close(found[0][1], found[1][1])


def test_disentangled_embeddings_start_equal() -> None:
    electra = model(generator=DISENTANGLED)
    ours, theirs = electra.target.network.encoder.embeddings.word, electra.generator.encoder.embeddings.word
    ids = torch.arange(VOCAB).unsqueeze(0)
    assert torch.equal(ours(ids), theirs(ids))
    assert torch.equal(ours.delta, torch.zeros_like(theirs.weight))
    assert float(theirs.weight.std().detach()) == pytest.approx(0.018, abs=0.002)


def test_state_of_disentangled_embeddings_is_the_sum() -> None:
    electra = model(generator=DISENTANGLED)
    word, network = set_difference(electra), electra.target.network
    state = network.state_dict()
    assert {name for name in state if "word" in name} == {"encoder.embeddings.word.weight"}
    assert torch.equal(state["encoder.embeddings.word.weight"], word.base + word.delta.detach())
    other = torch.randn_like(word.delta)
    network.load_state_dict(state | {"encoder.embeddings.word.weight": other})
    torch.testing.assert_close(word.weight.detach(), other)
    assert not torch.equal(electra.generator.encoder.embeddings.word.weight, other)


def test_parameters_of_disentangled_embeddings_are_saved_once() -> None:
    """A checkpoint has the generator's embeddings, under its name and with its learning rate, and the difference."""
    electra = model(generator=DISENTANGLED)
    names = [name for name, _ in electra.named_parameters() if ".word." in name]
    assert names == [
        "target.network.encoder.embeddings.word.delta",
        f"{GENERATOR_PREFIX}.generator.encoder.embeddings.word.weight",
    ]
    assert len({id(p) for p in electra.parameters()}) == len(list(electra.parameters()))


def test_flops_of_disentangled_embeddings() -> None:
    """The discriminator looks up both tables; the generator's has no backward pass there."""
    plain, disentangled = (
        model(generator=GeneratorConfig(size=0.5, tying=tying)).row_flops(40) for tying in ("none", "disentangled")
    )
    both = model(generator=GeneratorConfig(size=0.5)).row_flops(40)
    assert disentangled - both == 40 * (2 * 16 * VOCAB + 16)
    assert plain == both, "embeddings of 16 for a width of 16, shared or not"


def test_frozen_generator_with_disentangled_embeddings() -> None:
    electra = model(generator=replace(DISENTANGLED, training="frozen"))
    inputs = batch()
    loss, _ = electra(inputs, electra.counts(inputs))
    loss.backward()
    assert all(p.grad is None for p in electra.generator.parameters())
    assert all(p.grad is not None for p in electra.target.parameters())


def test_initial_attention_of_networks_with_disentangled_embeddings() -> None:
    """Positions are as large as the generator's words, also those of the discriminator, whose difference is zero."""
    sizes = EncoderConfig(vocab_size=VOCAB, embedding_size=32, hidden_size=32, num_layers=2, num_heads=2, ffn_size=64)
    electra = model(
        encoder=replace(sizes, attention_initializer="neighbors"),
        generator=GeneratorConfig(size=1.0, tying="disentangled"),
    )
    for network in (electra.target.network, electra.generator):
        position, word = network.encoder.embeddings.position.weight, network.encoder.embeddings.word.weight
        assert float(position.std().detach() / word.std().detach()) == pytest.approx(1.14, abs=0.1)
    ours, theirs = (each.encoder.embeddings.position.weight for each in (electra.target.network, electra.generator))
    assert not torch.equal(ours, theirs)
    assert F.cosine_similarity(ours.flatten(), theirs.flatten(), dim=0) < 0.5
