"""`mixupmp serve`: a posterior behind HTTP, with limits."""

from mixupmp.web.serve.limits import Limits
from mixupmp.web.serve.model import Model, model_of
from mixupmp.web.serve.serving import serve_model

__all__ = ["Limits", "Model", "model_of", "serve_model"]
