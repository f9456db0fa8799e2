"""torch's fused encoder layers, and how to do without them."""

from __future__ import annotations

from torch import nn


def plain_attention(network: nn.Module) -> nn.Module:
    """The network, with the encoders of torch in it calling all their layers on plain tensors, in evaluation too.

    In evaluation `nn.TransformerEncoderLayer` hands its weights to one fused function and calls none of its layers, so
    that an adapter in place of one is ignored; and `nn.TransformerEncoder` makes nested tensors of padded rows, which
    can be neither blended nor masked. It is switched off in each module, as torch's own switch is one for all threads.
    """
    for module in network.modules():
        if isinstance(module, nn.TransformerEncoderLayer):
            module.activation_relu_or_gelu = 0  # what the fused function is asked to apply: none that it knows
        elif isinstance(module, nn.TransformerEncoder):
            module.use_nested_tensor = False
    return network
