"""`mixupmp serve`: a posterior behind HTTP, within limits."""

from importlib import import_module

from mixupmp.core.errors import MissingExtra

for _package in ("fastapi", "prometheus_client", "python_multipart", "uvicorn"):
    try:
        import_module(_package)
    except ImportError as error:
        raise MissingExtra(_package, "serve", "The server") from error

from mixupmp.web.serve.app import create_app, serve_model  # noqa: E402
from mixupmp.web.serve.model import ServedModel, served_model  # noqa: E402
from mixupmp.web.serve.schemas import Limits  # noqa: E402

__all__ = ["Limits", "ServedModel", "create_app", "serve_model", "served_model"]
