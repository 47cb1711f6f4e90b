"""A batch of token ids.

Dimensions: B rows, T tokens.
"""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Int64
from torch import Tensor


@dataclass(frozen=True)
class Batch:
    """One micro-batch, padded on the right to its longest row."""

    input_ids: Int64[Tensor, "B T"]
    token_type_ids: Int64[Tensor, "B T"]
    lengths: Int64[Tensor, " B"]
    """Tokens of each row, with special tokens, without padding."""
    attention_mask: Bool[Tensor, "B T"] | None
    """True at tokens, False at padding; None without padding."""
    keys: Int64[Tensor, " B"] | None = None
    """Keys of the random numbers of each row (`electra.seeding`), in pre-training."""
    samples: Int64[Tensor, "B T"] | None = None
    """Tokens that a generator sampled before for the first masked positions of each row, if it did; 0 after them."""

    @property
    def row_keys(self) -> Int64[Tensor, " B"]:
        """`keys`, which this batch must have."""
        assert self.keys is not None
        return self.keys

    def tensors(self) -> list[Tensor]:
        """All tensors of the batch."""
        return [each for each in vars(self).values() if each is not None]

    def to(self, device: torch.device) -> "Batch":
        """Move a batch on the host to a device; to a GPU from pinned memory, so that the host does not wait."""
        pin = device.type == "cuda"
        given = {name: tensor for name, tensor in vars(self).items() if tensor is not None}
        moved = {
            name: (tensor.pin_memory() if pin else tensor).to(device, non_blocking=pin)
            for name, tensor in given.items()
        }
        return replace(self, **moved)
