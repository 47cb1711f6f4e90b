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
MIN_RECALL, ACCURACY_MARGIN = 0.01, 0.001

VOCABULARY_PROBLEM = "the vocabulary does not fit the text"
PROBLEMS = {
    "not-finite": "not a number",
    "exploding-gradients": "exploding gradients",
    "rising-loss": "rising loss",
    "high-masked-lm-loss": "the masked-LM loss does not fall",
    "low-auc": "the discriminator does not detect replaced tokens",
    "too-few-replacements": "too few replacements",
    "too-many-replacements": "too many replacements",
    "frequent-unknown-tokens": VOCABULARY_PROBLEM,
    "split-words": VOCABULARY_PROBLEM,
    "no-better-than-frequency": "the discriminator is no better than token frequency",
    "low-recall": "the discriminator predicts original for nearly all tokens",
}
"""Descriptions of all problems by their codes."""


@dataclass(frozen=True)
class Finding:
    """A problem of a run."""

    step: int
    code: str
    """A key of `PROBLEMS`, also the code of its log record."""
    problem: str
    """The description of the problem in `PROBLEMS`."""
    advice: str
    """The values that were found, and what to try."""
    last_step: int | None = None
    """The last step of the period from `step` on in which it was found; None if it was checked once."""


def build_finding(step: int, code: str, advice: str) -> Finding:
    """Build the finding of a problem."""
    return Finding(step, code, PROBLEMS[code], advice)


@dataclass
class Health:
    """Checks each row of metrics."""

    vocab_size: int
    scores_all_tokens: bool = True
    """Whether a discriminator is scored at all tokens. Otherwise detection metrics, which are over all tokens, mean little."""
    samples_originals: bool = True
    """Whether the generator's samples are all its own, and may be the original token."""
    changes: bool = False
    """Whether options change over training, and the loss with them."""
    norms: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)

    def check(self, step: int, done: float, metrics: Mapping[str, float]) -> list[Finding]:
        """Find the problems at `step`, after the share `done` of the run."""
        found = {
            **self.check_numbers(metrics),
            **(self.check_losses(metrics) if done > 0.25 and step >= PATIENCE else {}),
            **(check_samples(metrics) if self.samples_originals and done >= 0.5 and step >= GENERATOR_PATIENCE else {}),
        }
        self.norms = [*self.norms, metrics["gradient_norm"]][-100:]
        self.losses = [*self.losses, metrics["loss"]][-100:]
        return [build_finding(step, code, advice) for code, advice in found.items()]

    def check_numbers(self, metrics: Mapping[str, float]) -> dict[str, str]:
        """Find problems of the optimization, at any step; returns advice by code, as all checks do."""
        found = {}
        norm, loss = metrics["gradient_norm"], metrics["loss"]
        if not (math.isfinite(loss) and math.isfinite(norm)):
            found["not-finite"] = (
                "the loss or the gradients are not finite. Lower optimizer.learning_rate (halve it), warm up longer, "
                "or use runtime.precision float32"
            )
        elif len(self.norms) >= 5 and norm > max(10.0, 20 * statistics.median(self.norms)):
            found["exploding-gradients"] = (
                f"the gradient norm is {norm:.3g}, usually {statistics.median(self.norms):.3g}. One such step is clipped "
                "and harmless; if they come often, lower optimizer.learning_rate or warm up longer"
            )
        if not self.changes and len(self.losses) >= 10 and loss > 1.25 * min(self.losses):
            found["rising-loss"] = (
                f"the loss is {loss:.2f}, it was {min(self.losses):.2f}. Lower optimizer.learning_rate"
            )
        return found

    def check_losses(self, metrics: Mapping[str, float]) -> dict[str, str]:
        """Find losses and scores like those of an untrained model, which are normal early in a run."""
        found = {}
        uniform = math.log(self.vocab_size)
        for key in ("generator_loss", "mlm_loss"):
            # An adversarial generator does not minimize this loss.
            if metrics.get(key, 0.0) > 0.9 * uniform and "policy_loss" not in metrics:
                found["high-masked-lm-loss"] = (
                    f"{key} is {metrics[key]:.2f}, and uniform predictions have ln V = {uniform:.2f}. Raise "
                    "optimizer.learning_rate, train longer, or check that the text is what you expect"
                )
        if "auc" not in metrics:
            return found
        recall, replaced = metrics.get("recall", math.nan), metrics.get("replaced", math.nan)
        if self.scores_all_tokens and metrics["auc"] < 0.55:
            found["low-auc"] = (
                f"its AUC is {metrics['auc']:.3f} (0.5 is guessing) and its recall {recall:.3f}. Normal early in "
                "a long run; if it stays, lower optimizer.learning_rate, enlarge training.batch_size, or check that "
                "loss_weight is not too small"
            )
        right = metrics.get("sampled_accuracy", 0.0)
        if right > 0.85:
            found["too-few-replacements"] = (
                f"{right:.0%} of the generator's samples are the original token, so only {replaced:.1%} "
                "of all tokens are replaced. Raise masking.fraction (the paper's Large has 0.25) or make "
                "generator.size smaller"
            )
        return found


def check_samples(metrics: Mapping[str, float]) -> dict[str, str]:
    """Find a generator that has not improved when half of the run is over."""
    right = metrics.get("sampled_accuracy", 1.0)
    if right >= 0.03 or "generator_loss" not in metrics:  # the generator is a network, not token frequencies
        return {}
    return {
        "too-many-replacements": (
            f"only {right:.1%} of the generator's samples are the original token: it does not use the "
            "context yet, so nearly every masked token is replaced by one that does not fit. Train longer, raise "
            "optimizer.learning_rate, or make generator.size larger"
        )
    }


def check_vocabulary(coverage: Coverage | None) -> list[Finding]:
    """Find a vocabulary that does not fit the text; the step of the finding is 0."""
    if coverage is None or not coverage.is_poor:
        return []
    code = "split-words"
    reason = "Words in single characters make sequences several times as long, and single characters mean little"
    if coverage.unknown_share > MAX_UNKNOWN:
        code = "frequent-unknown-tokens"
        reason = (
            "[UNK] is the same token for every unknown word and is easy to predict, so accuracies and the AUC look better "
            "than they are, and the encoder learns little about this text"
        )
    advice = (
        "Train a vocabulary on the text (leave --tokenizer out), or check that the text is in the language you expect"
    )
    return [build_finding(0, code, f"{coverage}. {reason}. {advice}")]


def check_heldout(step: int, metrics: Mapping[str, float], scores_all_tokens: bool = True) -> list[Finding]:
    """Find problems of the discriminator in the held-out metrics of a finished run."""
    if not scores_all_tokens:
        return []
    advice = "Normal at the end of a short run: train longer, or try another optimizer.learning_rate or loss_weight"
    found = []
    # A target may have some of the metrics only.
    if {"auc", "frequency_auc"} <= metrics.keys() and metrics["auc"] < metrics["frequency_auc"] + FREQUENCY_MARGIN:
        found.append(
            build_finding(
                step,
                "no-better-than-frequency",
                f"its AUC on held-out text is {metrics['auc']:.3f}, and the frequency of the tokens alone reaches "
                f"{metrics['frequency_auc']:.3f}. {advice}",
            )
        )
    if (
        {"auc", "recall", "accuracy", "majority"} <= metrics.keys()
        and metrics["recall"] < MIN_RECALL
        and metrics["accuracy"] < metrics["majority"] + ACCURACY_MARGIN
    ):
        found.append(
            build_finding(
                step,
                "low-recall",
                f"on held-out text it detects {metrics['recall']:.1%} of the replaced tokens, and its accuracy of "
                f"{metrics['accuracy']:.1%} is no better than the majority rate ({metrics['majority']:.1%}). The "
                f"AUC ({metrics['auc']:.3f}) measures how well its scores rank tokens. {advice}",
            )
        )
    return found
