"""Messages of conflicts between options: each names the conflict and a valid alternative."""

from collections.abc import Iterable

from electra.errors import UsageError
from electra.pretraining.objectives.networks import GeneratorConfig


def raise_first_conflict(conflicts: Iterable[tuple[bool, str]]) -> None:
    """Raise a `UsageError` with the message of the first condition that is true."""
    for conflict, message in conflicts:
        if conflict:
            raise UsageError("conflicting-options", message)


def find_size_options(
    generator: GeneratorConfig, names: Iterable[str] = ("size", "depth", "heads", "ffn")
) -> tuple[str, str]:
    """Return the options, of `names`, that make generator and discriminator differ in size, and the options to use instead.

    Both are empty if the sizes are equal.
    """
    others = [name for name in names if getattr(generator, name) not in (None, 1.0)]
    return (
        " and ".join(f"generator.{name} {getattr(generator, name):g}" for name in others),
        " ".join(f"--generator.{name} 1" for name in others),
    )
