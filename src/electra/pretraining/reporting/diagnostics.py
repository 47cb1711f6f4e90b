"""Checks of a run's metrics for the typical problems of ELECTRA.

In a healthy run, an untrained model has a loss of ln V + 50 ln 2 (45 for 30,522 tokens). The discriminator's loss soon falls
to that of the constant prediction "original". At first nearly all masked tokens are replaced, then fewer as the generator
improves. The discriminator's recall stays near 0 while its AUC already rises, because replaced tokens are rare.
"""

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field

from electra.text.coverage import MAX_UNKNOWN, Coverage

PATIENCE = 200
"""Steps before which a loss that does not fall is normal."""
GENERATOR_PATIENCE = 1_000
"""Steps before which a generator that predicts token frequencies only is normal: context takes thousands of steps."""
FREQUENCY_MARGIN = 0.01
"""Minimum difference of the AUC to that of token frequency; less can be chance on small held-out text."""
LEAST_RECALL, ACCURACY_MARGIN = 0.01, 0.001


@dataclass(frozen=True)
class Finding:
    """A problem of a run."""

    step: int
    problem: str
    """Short and constant for the same problem."""
    advice: str
    """What it means and what to try."""
    last_step: int | None = None
    """The last step of the period from `step` on in which it was found; None if it was checked once."""


@dataclass
class Health:
    """Checks each row of metrics."""

    vocab_size: int
    everywhere: bool = True
    """Whether a discriminator is scored at all tokens. Its detection is measured over all of them, and says little if not."""
    samples_originals: bool = True
    """Whether the generator may sample the original token."""
    norms: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)

    def check(self, step: int, done: float, metrics: Mapping[str, float]) -> list[Finding]:
        """What is wrong at `step`, when the share `done` of the run is over."""
        advice = {
            **self.check_numbers(metrics),
            **(self.check_learning(metrics) if done > 0.25 and step >= PATIENCE else {}),
            **(check_samples(metrics) if self.samples_originals and done >= 0.5 and step >= GENERATOR_PATIENCE else {}),
        }
        self.norms = [*self.norms, metrics["gradient_norm"]][-100:]
        self.losses = [*self.losses, metrics["loss"]][-100:]
        return [Finding(step, problem, text) for problem, text in advice.items()]

    def check_numbers(self, metrics: Mapping[str, float]) -> dict[str, str]:
        """Problems of the optimization, at any time."""
        found = {}
        norm, loss = metrics["gradient_norm"], metrics["loss"]
        if not (math.isfinite(loss) and math.isfinite(norm)):
            found["not a number"] = (
                "the loss or the gradients are not finite. Lower optimizer.learning_rate (halve it), warm up longer, "
                "or use runtime.precision float32"
            )
        elif len(self.norms) >= 5 and norm > max(10.0, 20 * statistics.median(self.norms)):
            found["exploding gradients"] = (
                f"the gradient norm is {norm:.3g}, usually {statistics.median(self.norms):.3g}. One such step is clipped "
                "and harmless; if they come often, lower optimizer.learning_rate or warm up longer"
            )
        if len(self.losses) >= 10 and loss > 1.25 * min(self.losses):
            found["rising loss"] = (
                f"the loss is {loss:.2f}, it was {min(self.losses):.2f}. Lower optimizer.learning_rate"
            )
        return found

    def check_learning(self, metrics: Mapping[str, float]) -> dict[str, str]:
        """Problems that only show when a good part of the run is over."""
        found = {}
        uniform = math.log(self.vocab_size)
        for key in ("generator_loss", "mlm_loss"):
            if metrics.get(key, 0.0) > 0.9 * uniform and "policy_loss" not in metrics:  # an adversary has another aim
                found["the masked-LM loss does not fall"] = (
                    f"{key} is {metrics[key]:.2f}, and knowing nothing gives ln V = {uniform:.2f}. Raise "
                    "optimizer.learning_rate, train longer, or look at the text: is it what you think it is?"
                )
        if "auc" not in metrics:
            return found
        recall, replaced = metrics.get("recall", math.nan), metrics.get("replaced", math.nan)
        if self.everywhere and metrics["auc"] < 0.55:
            found["the discriminator only says original"] = (
                f"its AUC is {metrics['auc']:.3f} (0.5 is guessing) and its recall {recall:.3f}. Normal early in "
                "a long run; if it stays, lower optimizer.learning_rate, enlarge training.batch_size, or check that "
                "loss_weight is not too small"
            )
        right = metrics.get("sampled_accuracy", 0.0)
        if right > 0.85:
            found["too few replacements"] = (
                f"{right:.0%} of the generator's samples are the original token, so only {replaced:.1%} "
                "of all tokens are replaced. Raise masking.fraction (the paper's Large has 0.25) or make "
                "generator.size smaller"
            )
        return found


def check_samples(metrics: Mapping[str, float]) -> dict[str, str]:
    """Find a generator that has not improved when half of the run is over."""
    right = metrics.get("sampled_accuracy", 1.0)
    if right >= 0.03 or "generator_loss" not in metrics:  # samples by frequency were requested
        return {}
    return {
        "too many replacements": (
            f"only {right:.1%} of the generator's samples are the original token: it does not use the "
            "context yet, so nearly every masked token is replaced by one that does not fit. Train longer, raise "
            "optimizer.learning_rate, or make generator.size larger"
        )
    }


def check_vocabulary(coverage: Coverage | None) -> list[Finding]:
    """What the text itself has against a run: a vocabulary that cannot spell it. Its step is 0."""
    if coverage is None or not coverage.is_poor:
        return []
    why = "Words in single characters make sequences several times as long, and single characters mean little"
    if coverage.unknown_share > MAX_UNKNOWN:
        why = (
            "[UNK] is the same token for every unknown word and is easy to predict, so accuracies and the AUC look better "
            "than they are, and the encoder learns little about this text"
        )
    advice = (
        "Train a vocabulary on the text (leave --tokenizer out), or check that the text is in the language you expect"
    )
    return [Finding(0, "the vocabulary does not fit the text", f"{coverage}. {why}. {advice}")]


def check_heldout(step: int, metrics: Mapping[str, float], everywhere: bool = True) -> list[Finding]:
    """What the held-out metrics of a finished run say against its discriminator; `everywhere` as in `Health`."""
    if "auc" not in metrics or not everywhere:
        return []
    advice = "Normal at the end of a short run: train longer, or try another optimizer.learning_rate or loss_weight"
    found = []
    if metrics["auc"] < metrics["frequency_auc"] + FREQUENCY_MARGIN:
        found.append(
            Finding(
                step,
                "the discriminator is no better than token frequency",
                f"its AUC on held-out text is {metrics['auc']:.3f}, and the frequency of the tokens alone reaches "
                f"{metrics['frequency_auc']:.3f}. {advice}",
            )
        )
    if metrics["recall"] < LEAST_RECALL and metrics["accuracy"] < metrics["majority"] + ACCURACY_MARGIN:
        found.append(
            Finding(
                step,
                "the discriminator calls nearly everything original",
                f"on held-out text it finds {metrics['recall']:.1%} of the replaced tokens, and its accuracy of "
                f"{metrics['accuracy']:.1%} is no better than the majority rate ({metrics['majority']:.1%}). Whether its "
                f"scores rank tokens well all the same is what the AUC says ({metrics['auc']:.3f}). {advice}",
            )
        )
    return found
