"""The encoder and heads against outputs of the original TensorFlow code with the same weights."""

import numpy as np
import pytest
import torch
from support.places import REFERENCE
from support.tensorflow_names import tf_to_hf

from electra.model.checkpoints import from_hf, to_hf
from electra.model.encoder import EncoderConfig
from electra.pretraining.objectives.networks import Discriminator, GeneratorConfig, MaskedLM, compute_generator_sizes

TF_SMALL = REFERENCE / "tf_small"
CONFIG = EncoderConfig(vocab_size=6000, embedding_size=64, hidden_size=128, num_layers=3, num_heads=4, ffn_size=512)

pytestmark = pytest.mark.skipif(not TF_SMALL.exists(), reason=f"the golden numbers are not at {TF_SMALL}")


@pytest.fixture(scope="module")
def variables() -> dict[str, np.ndarray]:
    return {name.replace("|", "/"): value for name, value in np.load(TF_SMALL / "weights.npz").items()}


@pytest.fixture(scope="module")
def expected() -> dict[str, torch.Tensor]:
    arrays = {name: torch.from_numpy(value) for name, value in np.load(TF_SMALL / "expected.npz").items()}
    return {
        name: value.long() if value.dtype == torch.int32 else value.bool() if name == "input_mask" else value
        for name, value in arrays.items()
    }


def worst(ours: torch.Tensor, theirs: torch.Tensor, where: torch.Tensor) -> float:
    return float((ours - theirs).abs()[where].max())


@torch.no_grad()
def test_discriminator(variables, expected) -> None:
    network = Discriminator(CONFIG).eval()
    network.load_state_dict(from_hf(tf_to_hf(variables, "electra"), CONFIG, "replaced-token"))
    inputs = expected["corrupted_input_ids"], expected["segment_ids"], expected["input_mask"].bool()
    real = inputs[2]
    assert not real.all(), "two of the sequences are padded"
    assert worst(network.encoder(*inputs), expected["discriminator_hidden"], real) < 1e-4
    probabilities = network(*inputs).sigmoid()
    assert worst(probabilities, expected["discriminator_probs"], real) < 1e-4


@torch.no_grad()
def test_generator(variables, expected) -> None:
    config = compute_generator_sizes(CONFIG, GeneratorConfig(size=0.25))
    network = MaskedLM(config).eval()
    network.load_state_dict(from_hf(tf_to_hf(variables, "generator"), config, "masked-lm"))
    inputs = expected["masked_input_ids"], expected["segment_ids"], expected["input_mask"].bool()
    assert worst(network.encoder(*inputs), expected["generator_hidden"], inputs[2]) < 1e-4
    logits = network(*inputs, expected["masked_lm_positions"])
    used = expected["masked_lm_weights"].bool()
    assert worst(logits, expected["generator_logits"], used) < 1e-4
    loss = torch.nn.functional.cross_entropy(logits[used], expected["masked_lm_ids"][used])
    assert float(loss) == pytest.approx(float(expected["generator_loss"]), abs=1e-4)


@pytest.mark.parametrize(("network", "head"), [("electra", "replaced-token"), ("generator", "masked-lm")])
def test_every_tensorflow_variable_is_read_and_written(variables, network: str, head: str) -> None:
    config = CONFIG if network == "electra" else compute_generator_sizes(CONFIG, GeneratorConfig(size=0.25))
    weights = tf_to_hf(variables, network)
    back = to_hf(from_hf(weights, config, head), config, head)
    assert back.keys() == weights.keys()
    assert all(torch.equal(back[name], weights[name]) for name in weights)
