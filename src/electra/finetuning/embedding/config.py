"""The options of contrastive training of sentence vectors."""

from dataclasses import dataclass

from electra.config.checks import check_range
from electra.errors import UsageError


@dataclass(frozen=True)
class EmbeddingConfig:
    """Options of the loss, and columns of its files (Gao et al., 2021, sections 3 and 4)."""

    temperature: float = 0.05
    """Divisor of the cosine similarities in the loss."""
    negative: str | None = None
    """Column of --train with a hard negative: a text that is similar to that of --text, but has another meaning."""
    scored: tuple[str, ...] = ("sentence1", "sentence2", "score")
    """Columns of --dev: two texts and how similar they are, any number; by default those of STS-B."""

    def __post_init__(self) -> None:
        check_range(self, "embedding", "temperature", at_least=10**-3, at_most=10**3)
        if len(self.scored) != 3:
            raise UsageError(
                "wrong-columns",
                f"--embedding.scored has {len(self.scored)} columns, expected 3: those of two texts and of their score",
            )
