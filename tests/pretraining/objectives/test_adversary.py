"""The adversarial generator (Appendix F): REINFORCE with a learned baseline."""

import math

import pytest
import torch
import torch.nn.functional as F
from support.tiny_models import MASK, VOCAB, batch, model
from torch import Tensor

from electra.pretraining.objectives.model import ForwardOutput
from electra.pretraining.objectives.networks import GeneratorConfig
from electra.pretraining.objectives.targets.replaced_tokens import ContrastConfig


def policy_and_baseline(output: ForwardOutput) -> Tensor:
    """Add up the losses of the adversarial generator at the masked positions."""
    return output.losses["policy_loss"] + output.losses["baseline_loss"]


def test_policy_gradient_equals_reinforce() -> None:
    """d loss / d logits of a sample s with softmax p is (reward - baseline) (p - 1_s) / temperature.

    The gradient of the generator's hidden states is that times d logits / d hidden.
    """
    electra = model(generator=GeneratorConfig(training="adversarial", temperature=2.0)).eval()
    inputs = batch()
    done = electra.run(inputs)
    generated, used = done.corrupted.generated, done.masked.used
    (gradient,) = torch.autograd.grad(policy_and_baseline(done).sum(), generated.hidden, retain_graph=True)
    replaced = (done.corrupted.input_ids != inputs.input_ids).float()
    everywhere = F.binary_cross_entropy_with_logits(done.prediction.logits, replaced, reduction="none")
    reward = everywhere.gather(1, done.masked.positions)
    baseline = -torch.sigmoid(electra.corruption.baseline(generated.hidden)).squeeze(-1).log()
    advantage = ((reward - baseline) * used).detach()
    logits = electra.generator(hidden=generated.hidden)
    p = (logits.detach() / 2).index_fill(-1, torch.tensor([MASK]), -math.inf).softmax(-1)
    to_logits = advantage.unsqueeze(-1) * (p - F.one_hot(generated.sampled, VOCAB)) / 2
    (expected,) = torch.autograd.grad(logits, generated.hidden, to_logits, retain_graph=True)
    torch.testing.assert_close(gradient, expected)
    head = electra.target.network.head.score.weight
    reached = torch.autograd.grad(policy_and_baseline(done).sum(), head, allow_unused=True, retain_graph=True)
    assert reached == (None,), "the policy loss has no gradient to the discriminator"
    metrics = electra.metrics(done.sums)
    assert metrics["reward"] == pytest.approx(float((reward * used).sum().detach() / used.sum()), rel=1e-5)
    parts = metrics["weighted_loss"] + metrics["policy_loss"] + metrics["baseline_loss"]
    assert metrics["loss"] == pytest.approx(parts)


def test_adversarial_reward_excludes_uncorrupted_rows() -> None:
    """Uncorrupted rows have no policy loss."""
    generator = GeneratorConfig(training="adversarial", exclude_original_token=True)
    electra = model(generator=generator, contrast=ContrastConfig(weight=1.0, unchanged=0.5)).train()
    inputs = batch(lengths=(40,) * 60)
    done = electra.run(inputs)
    unchanged = (done.corrupted.input_ids == inputs.input_ids).all(1)
    assert 10 < int(unchanged.sum()) < 50
    assert not policy_and_baseline(done)[unchanged].any()
    assert policy_and_baseline(done)[~unchanged][done.masked.used[~unchanged]].all()
    (gradient,) = torch.autograd.grad(policy_and_baseline(done).sum(), electra.generator.head.bias)
    assert not gradient[MASK], "excluded tokens have no gradient"
    assert gradient.any()


@pytest.mark.slow
def test_reward_rises_against_a_fixed_discriminator() -> None:
    """The reward rises, and the baseline's loss falls."""
    torch.manual_seed(0)
    electra, inputs = (
        model(generator=GeneratorConfig(size=1.0, training="adversarial", tying="none")),
        batch((40,) * 16),
    )
    electra.target.network.head.score.weight.data *= 20  # clear predictions
    optimizer = torch.optim.Adam(electra.corruption.parameters(), lr=3e-3)
    rewards, baselines = [], []
    for _ in range(150):
        optimizer.zero_grad()
        output = electra.run(inputs)
        (policy_and_baseline(output).sum() / electra.counts(inputs)["masked"]).backward()
        optimizer.step()
        rewards.append(float(output.sums["reward"].detach()))
        baselines.append(float(output.sums["baseline_loss"].detach()))
    assert sum(rewards[-20:]) > 1.1 * sum(rewards[:20])
    assert sum(baselines[-20:]) < sum(baselines[:20])
