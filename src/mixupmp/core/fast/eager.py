"""Whether torch computes what it is told, as the fast paths need, or traces or transforms it."""

from __future__ import annotations

import torch


def is_eager() -> bool:
    """Whether this is outside graph capture and `torch.func` transforms."""
    return torch._C._functorch.peek_interpreter_stack() is None and not (
        torch.compiler.is_compiling() or torch._C._get_tracing_state()
    )
