"""`mixupmp serve`: a posterior behind HTTP, with limits."""

from mixupmp.serve.limits import Limits
from mixupmp.serve.model import Model, model_of
from mixupmp.serve.serving import serve_model

__all__ = ["Limits", "Model", "model_of", "serve_model"]
