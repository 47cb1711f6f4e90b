"""An encoder with the head of a task, for training and inference."""

from collections.abc import Callable, Mapping
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from electra.finetuning.batching import EncodedExamples, LabeledBatch, iterate_by_length
from electra.finetuning.task import Head, Outputs
from electra.model.encoder import Encoder
from electra.model.flops import encoder_flops
from electra.runtime.setup import Runtime


class FinetunedModel(nn.Module):
    """An encoder and a head; implements `train.loop.Trainable`.

    With `summed_loss`, the loss of a batch is the sum over its examples, as in the original code, else their mean.
    """

    def __init__(self, encoder: Encoder, head: nn.Module, summed_loss: bool = False) -> None:
        super().__init__()
        self.summed_loss = summed_loss
        self.encoder = encoder
        self.head = head

    def compute_hidden(self, batch: LabeledBatch) -> Tensor:
        """Compute the encoder's last hidden states: [R, L, H], or [R, 1, H] of [CLS] alone if the head reads no other."""
        inputs = batch.inputs
        # The shape, not len(): an exported graph has any number of examples.
        cls = inputs.input_ids.new_zeros(inputs.input_ids.shape[0], 1) if cast(Head, self.head).only_cls else None
        return self.encoder(inputs.input_ids, inputs.token_type_ids, inputs.attention_mask, cls)

    def forward(self, batch: LabeledBatch, counts: Mapping[str, float]) -> tuple[Tensor, dict[str, Tensor]]:
        """Compute this batch's share of the loss, a mean over `counts["examples"]` or a sum, and the sums for `metrics`."""
        losses = cast(Head, self.head).loss(self.compute_hidden(batch).float(), batch)
        examples = torch.ones_like(losses).sum()  # on the device: no host synchronization
        divisor = 1.0 if self.summed_loss else counts["examples"]
        return losses.sum() / divisor, {"loss": losses.detach().sum(), "examples": examples}

    def counts(self, batch: LabeledBatch) -> dict[str, float]:
        """Count the examples, and the tokens without padding."""
        return {"examples": float(len(batch)), "tokens": float(batch.inputs.lengths.sum())}

    def metrics(self, sums: Mapping[str, Tensor]) -> dict[str, float]:
        """Return the mean loss of an example."""
        return {"loss": float(sums["loss"] / sums["examples"])}

    def flops(self, batch: LabeledBatch) -> float:
        """Count the FLOPs of forward and backward as in Appendix E of the paper: 2 x forward. Heads are too small to count."""
        num_sequences, length = batch.inputs.input_ids.shape
        return 2.0 * num_sequences * encoder_flops(self.encoder.config, length)

    @torch.inference_mode()
    def compute_outputs(self, examples: EncodedExamples, runtime: Runtime, batch_size: int, pad_id: int) -> Outputs:
        """Compute the outputs of the head for every example, in the order of `examples`; the model is left in eval mode."""
        self.eval()

        def compute(batch: LabeledBatch) -> dict[str, Tensor]:
            batch = batch.to(runtime.device)
            with runtime.autocast():
                hidden = self.compute_hidden(batch)
            return cast(Head, self.head).predict(hidden.float(), batch)

        return compute_by_length(examples, batch_size, pad_id, compute)


def compute_by_length(
    examples: EncodedExamples, batch_size: int, pad_id: int, compute: Callable[[LabeledBatch], dict[str, Tensor]]
) -> Outputs:
    """Compute outputs by name, tensors [B, ...], in batches of similar length; return them in the order of `examples`."""
    by_index: dict[int, dict[str, np.ndarray]] = {}
    for indices, batch in iterate_by_length(examples, batch_size, pad_id):
        arrays = {name: tensor.float().cpu().numpy() for name, tensor in compute(batch).items()}
        for row, index in enumerate(indices.tolist()):
            by_index[index] = {name: np.asarray(array[row]) for name, array in arrays.items()}
    return [by_index[i] for i in range(len(examples))]
