"""FLOPs by network and part, and parameters, of a pre-training run, on the meta device."""

from typing import Any

from torch import nn

from electra.model.flops import inference_flops
from electra.pretraining.build import build_meta_model
from electra.pretraining.config import PretrainConfig
from electra.pretraining.objectives.corruptions.masking import count_masked_over_run


def count_costs(config: PretrainConfig) -> dict[str, Any]:
    """Count FLOPs and parameters of a run with one stage, as the training loop does (Appendix E).

    If the masked share changes, the costs of a sequence or an update are means over the run.

    Args:
        config: The run; its budget is a number of steps.

    Returns:
        "networks": FLOPs of a forward pass of one sequence of `seq_len` tokens, by network and part; "inference_flops": the
        same for the main encoder with a small head; "forward_flops" and "backward_flops" of one update; "train_flops" of all
        updates. "parameters": of the "main encoder", of the "other" modules, and of "all". "masked": number of masked
        positions in a sequence, rounded.
    """
    assert config.steps is not None, "a budget in hours has no FLOPs before training"
    assert config.procedure == "joint", "stages train different networks"
    model = build_meta_model(config)
    costs, batch = model.mean_row_costs(config.seq_len), config.training.batch_size
    forward = batch * sum(sum(cost.forward.values()) for cost in costs.values())
    step = batch * model.mean_row_flops(config.seq_len)
    masked = count_masked_over_run(config.seq_len, config.masking)
    main, everything = count_parameters(model.target), count_parameters(model)
    return {
        "preset": config.preset,
        "objective": config.objective,
        "seq_len": config.seq_len,
        "batch_size": batch,
        "steps": config.steps,
        "masked": round(sum(number * share for number, share in masked.items())),
        "parameters": {"main encoder": main, "other": everything - main, "all": everything},
        "networks": {network: cost.forward for network, cost in costs.items()},
        "inference_flops": inference_flops(config.model, config.seq_len),
        "forward_flops": forward,
        "backward_flops": step - forward,
        "train_flops": config.steps * step,
    }


def count_parameters(network: nn.Module) -> int:
    """Count the parameters of a network; shared ones count once."""
    return sum(parameter.numel() for parameter in network.parameters())


def format_flops(flops: float | int) -> str:
    """Format FLOPs to three digits as in the paper: 1.42e18."""
    mantissa, exponent = f"{flops:.2e}".split("e")
    return f"{mantissa}e{int(exponent)}"


def format_counts(counted: dict[str, Any]) -> tuple[str, list[list[str]], list[str]]:
    """Format the counts of a run: a heading, a row per part, and the totals."""
    networks, length = counted["networks"], counted["seq_len"]
    total = sum(sum(parts.values()) for parts in networks.values())
    rows = [["FLOPs of a sequence, forward", *networks, "share"]]
    for part in dict.fromkeys(part for parts in networks.values() for part in parts):
        each = [parts.get(part, 0) for parts in networks.values()]
        rows.append([part, *(format_flops(flops) if flops else "-" for flops in each), f"{sum(each) / total:.1%}"])
    rows.append(["all", *(format_flops(sum(parts.values())) for parts in networks.values()), "100.0%"])
    size = {name: f"{number / 1e6:.{1 if number > 1e6 else 2}f} M" for name, number in counted["parameters"].items()}
    other = f", {size['other']} of the other modules" if counted["parameters"]["other"] else ""
    forward, backward = (format_flops(counted["steps"] * counted[name]) for name in ("forward_flops", "backward_flops"))
    heading = (
        f"{counted['preset']}, objective {counted['objective']}: {counted['steps']:,} updates of "
        f"{counted['batch_size']:,} sequences of {length} tokens, {counted['masked']} of them masked"
    )
    totals = [
        f"training: {format_flops(counted['train_flops'])} FLOPs, {forward} of them forward and {backward} backward",
        f"inference: {format_flops(counted['inference_flops'])} FLOPs for one sequence of {length} tokens",
        f"parameters: {size['main encoder']} of the main encoder{other}",
    ]
    return heading, rows, totals
